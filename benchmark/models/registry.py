"""The interface of model families, and their registry. Imports no torch: `analysis` reads specs on a login node."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_origin

from pydantic import model_validator

from vitinit.benchmark import identity
from vitinit.benchmark.fields import Frozen, Size
from vitinit.benchmark.files.yaml_text import read
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import MODELS, Registry, concrete

if TYPE_CHECKING:
    from torch import nn

    from vitinit.benchmark.models.named import NamedModel

PRESETS = read(Path(__file__).with_name("presets.yaml"))
"""Those of our families, by `arch`."""


class BaseModelSpec(Frozen):
    """A model as a value, and all that the benchmark asks of its family, whatever the model is made of.

    A family is a subclass in a file of this folder, or named by an installed package in the entry point group
    `vitinit.models`. It gives `arch` its one value, `arch: Literal["vit"] = "vit"`, adds the fields that count for it
    and no others, and says what is not said here. Its file imports torch and timm inside functions only.

    A field that is added or removed one day gets a line in `benchmark/identity.yaml`, so that run_ids hold.
    """

    label: ClassVar[str]
    """Name in tables."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named sets of fields, without image_size and patch_size, the smallest model first. The names are unique over all
    families; each can be built at 32 pixels with patch 4."""
    by_name: ClassVar[bool] = False
    """True if its model is named rather than described: a base leaves what no rule covers as its library builds it."""
    dense: ClassVar[bool] = False
    """True if its classifier can be put on every patch token (`benchmark/models/build.py`): a model with timm's
    `forward_features`, `forward_head` and `head_drop`, none of whose parameters serves another token alone."""
    arch: str
    """Name of the family."""
    image_size: Size
    """Side of the images, in pixels."""

    @classmethod
    def name(cls) -> str:
        """The value of `arch`."""
        return str(cls.model_fields["arch"].get_default())

    @model_validator(mode="before")
    @classmethod
    def _current(cls, given: Any) -> Any:
        return identity.current(f"model.{cls.name()}", given, cls.model_fields) if isinstance(given, dict) else given

    def check(self) -> None:
        """Refuse what only its library tells; imports it if it must.

        Raises:
            VitinitError: it cannot be built.
        """

    @abstractmethod
    def describe(self) -> str:
        """The model in one phrase, for tables."""

    @property
    def batch_norm(self) -> bool:
        """Return True if an image's output in training depends on the others of its batch."""
        return False

    @property
    def attention_maps(self) -> tuple[int, int, int, int] | None:
        """Shape of what may be kept of its attention: layers, heads, tokens, tokens.

        None: it has no attention, or layers with different heads or tokens.
        """
        return None

    @property
    def reads_patches(self) -> bool:
        """Return True if the classifier depends on the patches of the last layer."""
        return True

    @property
    def gated_layers(self) -> int:
        """Number of blocks with gated positional self-attention, counted from the input."""
        return 0

    @abstractmethod
    def build(self, classes: int) -> nn.Module:
        """The model with unspecified weights, from B x 3 x image_size x image_size to B x classes.

        The names of its classifier's parameters begin with `head`, and of no others. Where it has attention it has
        timm's `patch_embed`, and an adapter knows its token grid. It may draw from the global generator, which
        `build_model` keeps as it is.
        """


class ModelSpec(BaseModelSpec):
    """A model of ours: blocks that mix the tokens of square patches. What most families are."""

    patch_size: Size
    """Pixels a side of what becomes one token."""
    width: Size
    """Features of a token."""
    depth: Size
    """Blocks that mix tokens."""

    @model_validator(mode="after")
    def _patches_fill_the_image(self) -> ModelSpec:
        if self.image_size % self.patch_size:
            raise ValueError(f"image_size {self.image_size} is not divisible by patch_size {self.patch_size}")
        return self

    @property
    def grid(self) -> int:
        """Side of the (square) token grid."""
        return self.image_size // self.patch_size

    @property
    @abstractmethod
    def mixing(self) -> str:
        """Return the mechanism that mixes its tokens, for tables: `3 heads`."""

    def describe(self) -> str:
        """The model in one phrase."""
        return f"{self.label} width {self.width} depth {self.depth}, {self.mixing}, patch {self.patch_size}"


def _is_family(value: object) -> bool:
    """Return True for a concrete family, False for a shared base class."""
    return concrete(BaseModelSpec)(value) and get_origin(value.model_fields["arch"].annotation) is Literal  # type: ignore[attr-defined]


REGISTRY: Registry[type[BaseModelSpec]] = Registry(
    "arch",
    (__package__,),
    group=MODELS,
    wanted="a model family: a ModelSpec with `arch: Literal[NAME] = NAME`, and all that it asks defined",
    accepts=_is_family,
    collect=True,
    name=lambda family: family.name(),
)
families = REGISTRY.by_name
"""All families by `arch`, in the order of the names."""


def by_name(fields: Mapping[str, Any]) -> type[NamedModel] | None:
    """The family of models by name that fields of a grid are of, by the field that holds the name.

    Raises:
        VitinitError: there are two such fields.
    """
    named: list[Any] = [family for family in families().values() if getattr(family, "key", None) in fields]
    if len(named) > 1:
        raise VitinitError(f"model: {' and '.join(family.key for family in named)} both name one; give one of them")
    return named[0] if named else None


def presets() -> dict[str, dict[str, Any]]:
    """Named sets of fields of all families; a grid adds image_size and patch_size, and may override any field."""
    return {
        name: {"arch": arch, **fields} for arch, family in families().items() for name, fields in family.presets.items()
    }


def family_of(fields: Mapping[str, Any]) -> type[BaseModelSpec]:
    """The family that the field `arch` names.

    Raises:
        VitinitError: there is no such family.
    """
    arch = fields.get("arch", "vit")
    if not isinstance(arch, str) or ":" in arch:
        raise VitinitError(
            f"arch is the name of a model family: {', '.join(families())}; of your own file give a class or function "
            "that returns a model: python: 'FILE.py:NAME'"
        )
    return REGISTRY.get(arch)
