"""Models by name, with arguments of their constructor: any classifier of timm, and any class or function of Python's.

Imports no torch before it is needed: a spec that a record holds is read without it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from vitinit.benchmark.models.build import has_batch_norm
from vitinit.benchmark.models.registry import BaseModelSpec
from vitinit.initializers import plugins
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from torch import nn

SIZES = ("img_size", "image_size")
"""Names that libraries have for the side of the images."""
NOT_HERE = (
    "pretrained pretrained_cfg pretrained_cfg_overlay checkpoint_path weight_init init_std features_only out_indices "
    "device dtype num_classes in_chans cache_dir"
)
"""Arguments that no run has: they fetch or set weights, make no classifier, or follow from the dataset."""


class NamedModel(BaseModelSpec):
    """A model of which a grid gives the name, the size of the images and arguments; no family by itself.

    Bases and methods apply as far as the adapters know its modules (`initializers/adapters/`).
    """

    by_name = True
    key: ClassVar[str]
    """Field that holds the name, and that a grid gives in place of `arch`."""

    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of the constructor."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @classmethod
    def of_grid(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Put what is no field of the spec among the arguments.

        Raises:
            VitinitError: an argument is given twice, as `img_size` and `image_size`, or in `args` and beside it.
        """
        args = {}
        for name, value in [*fields.items(), *(fields.get("args") or {}).items()]:
            if name in (cls.key, "args") or (name, value) == ("arch", cls.name()):
                continue
            name = "image_size" if name in SIZES else name
            if name in args:
                raise VitinitError(f"model {cls.key} {fields[cls.key]}: {name} is given twice; give it once")
            args[name] = value
        return {cls.key: fields[cls.key], "image_size": args.pop("image_size", None), "arch": cls.name(), "args": args}

    @model_validator(mode="after")
    def _fetches_nothing_and_has_layers(self) -> NamedModel:
        for name, value in self.args.items():
            why = ""
            if name in NOT_HERE.split() or name.startswith("pretrained"):
                why = "is not for a grid or a record to give; leave it out"
            elif re.search("depth|layers|blocks", name) and re.search(r"^0$|\b\d{5}", str(value)):
                why = f"{value} is no number of layers from 1 to 9,999"  # a million of them take days to plan
            if why:
                raise ValueError(f"{self.key} {getattr(self, self.key)}: {name} {why}")
        return self

    def check(self) -> None:
        """Build it without memory for its values, and let it classify; whatever somebody's code raises is one line."""
        with plugins.imported(f"model {self.key} {getattr(self, self.key)}", VitinitError):
            has_batch_norm(self)

    @property
    def batch_norm(self) -> bool:
        """Return True if it has a BatchNorm."""
        return has_batch_norm(self)

    def describe(self) -> str:
        """Its name and arguments."""
        name = f"{self.key} {getattr(self, self.key)}"
        return ", ".join([name, *(f"{argument} {value}" for argument, value in self.args.items())])


class TimmModel(NamedModel):
    """A model of timm.

    A grid says `model: {timm: vit_small_patch16_224, img_size: 32, patch_size: 4, drop_path_rate: 0.1}`: all but the
    name and the size of the images are arguments. Without `img_size` images are as large as timm has them for it.
    Defaults are timm's; a record holds its version.
    """

    label = "timm model"
    key = "timm"

    arch: Literal["timm"] = "timm"
    timm: Annotated[str, Field(pattern=r"^\w+$")]
    """No `hf-hub:NAME` and no tag: both fetch weights."""

    @classmethod
    def of_grid(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in the size of the images, too."""
        import timm

        spec, name = super().of_grid(fields), str(fields["timm"])
        for argument, value in spec["args"].items():
            if value is None:
                raise VitinitError(f"model timm {name}: {argument} is null, which timm passes over: leave it out")
        known = timm.list_models()
        bare, _, tag = name.partition(".")
        if tag and bare in known:
            raise VitinitError(f"model timm {name}: {tag} names weights, which no run begins with; write timm: {bare}")
        if name not in known:
            raise VitinitError(
                f"timm has no model {name[:80]!r}; "
                f"{', '.join(difflib.get_close_matches(name, known, n=5)) or 'none is near'}? All: timm.list_models()"
            )
        if spec["image_size"] is None and (usual := timm.get_pretrained_cfg(name)):
            spec["image_size"] = usual.input_size[-1]
        return spec

    def build(self, classes: int) -> nn.Module:
        """By `timm.create_model`, which is told the size of the images where the model has to know it."""
        import timm

        given: dict[str, Any] = {"num_classes": classes, **self.args}
        try:
            return timm.create_model(self.timm, img_size=self.image_size, **given)
        except (TypeError, KeyError) as error:
            if "img_size" not in str(error):
                raise
            return timm.create_model(self.timm, **given)


class PythonModel(NamedModel):
    """A class, or a function that returns a model: `model: {python: "my_package:MyViT", args: {...}, image_size: 32}`.

    It is called with `args` and `num_classes`, and with the size of the images where it takes `img_size` or
    `image_size`. What it returns takes B x 3 x S x S and gives B x classes.
    """

    label = "Python model"
    key = "python"

    arch: Literal["python"] = "python"
    python: str
    """module:NAME, or file.py:NAME with the file's content (`initializers/plugins.py`)."""

    @field_validator("python")
    @classmethod
    def _names_a_module_and_a_class(cls, name: str) -> str:
        if not all(name.partition(":")):
            raise ValueError("write module:NAME, as in my_package.models:MyViT")
        return name

    @property
    def constructor(self) -> Callable[..., nn.Module]:
        """The class or function."""
        return plugins.load(self.python)

    def build(self, classes: int) -> nn.Module:
        """Call it."""
        sizes = dict.fromkeys(SIZES, self.image_size)
        return called(self.constructor, sizes, num_classes=classes, **self.args)


def called(make: Callable[..., Any], offered: Mapping[str, int], **arguments: Any) -> Any:
    """Call a class or function, with those of the offered arguments too that it takes, maybe behind its `**kwargs`."""
    try:
        return make(**offered, **arguments)
    except TypeError as error:
        fewer = {name: value for name, value in offered.items() if f"keyword argument '{name}'" not in str(error)}
        if fewer == offered:
            raise
        return called(make, fewer, **arguments)
