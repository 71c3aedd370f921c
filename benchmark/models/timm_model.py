"""Any image classifier of timm, by its name, with the arguments of `timm.create_model`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from vitinit.benchmark.models.named import CLASSES, NamedModel, with_args
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from torch import nn

NOT_HERE = {
    **dict.fromkeys(("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path"), "loads weights"),
    **dict.fromkeys(("weight_init", "init_std"), "sets weights, which the base does"),
    **dict.fromkeys(("features_only", "out_indices"), "makes a model that is no classifier"),
    **dict.fromkeys(("exportable", "scriptable", "no_jit", "device", "dtype"), "is not for a grid to choose"),
    **dict.fromkeys(("num_classes", "in_chans"), "follows from the dataset"),
}
"""Arguments of `timm.create_model` that no grid gives, each with the reason."""


class TimmModel(NamedModel):
    """A model of timm.

    A grid says `model: {timm: vit_small_patch16_224, img_size: 32, patch_size: 4, drop_path_rate: 0.1}`: all but the
    name and the size of the images are arguments. Without `img_size` images are as large as timm has them for it.
    Defaults are timm's; a record holds its version.
    """

    label: ClassVar[str] = "timm model"
    key: ClassVar[str] = "timm"
    telling: ClassVar[tuple[str, ...]] = ("timm",)

    arch: Literal["timm"] = "timm"
    timm: str

    @classmethod
    def of_grid(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Put what is no field of the spec among the arguments, and fill in the size of the images."""
        own = with_args(cls, fields)
        for name in own["args"].keys() & NOT_HERE.keys():
            raise VitinitError(f"model timm {own.get('timm')}: {name} {NOT_HERE[name]}; leave it out")
        if "image_size" not in own:
            own["image_size"] = _usual_size(str(own.get("timm")))
        return own

    @property
    def constructor(self) -> Callable[..., nn.Module]:
        """The class of the model."""
        from vitinit.benchmark.models.build import without_values

        _check_name(self.timm)
        return type(without_values(self.model_copy(update={"args": {}}), CLASSES))

    def build(self, classes: int) -> nn.Module:
        """By `timm.create_model`, which is told the size of the images where the model has to know it."""
        import timm

        _check_name(self.timm)
        given: dict[str, Any] = {"num_classes": classes, **self.args}
        try:
            return timm.create_model(self.timm, img_size=self.image_size, **given)
        except (TypeError, KeyError) as error:  # either is raised for an argument that is there twice
            if given_twice := [name for name in self.args if f"'{name}'" in str(error)]:
                where = f"model timm {self.timm}"
                raise VitinitError(f"{where}: {given_twice[0]} is fixed by its name; leave it out") from error
            if "img_size" not in str(error):
                raise
            return timm.create_model(self.timm, **given)


def _usual_size(name: str) -> int:
    import timm

    _check_name(name)
    usual = timm.get_pretrained_cfg(name)
    if usual is None:
        raise VitinitError(f"model timm {name}: img_size is missing; timm has none for it")
    return int(usual.input_size[-1])


def _check_name(name: str) -> None:
    import timm

    known = timm.list_models()
    bare, dot, tag = name.partition(".")
    if bare in known and dot:
        raise VitinitError(f"model timm {name}: {tag} names weights, which no run begins with; write timm: {bare}")
    if name not in known:
        near = difflib.get_close_matches(name, known, n=5) or ["none is near"]
        raise VitinitError(f"timm has no model {name[:80]!r}; {', '.join(near)}? All: vitinit list timm [PATTERN]")
