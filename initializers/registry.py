"""Base class of initialisers, and their registry.

An initialiser is one decorated class in one file. Its fields are its parameters: typed, validated, with defaults.
It is found when its file lies in `bases/` or `methods/`, when an installed package names it in the entry point group
`vitinit.initializers`, or by its dotted path `package.module:Class`.
"""

import fnmatch
import inspect
import re
import textwrap
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from torch import Generator, Tensor, nn

from vitinit.initializers.attention import AttentionLayer, attention_layers, family, position_name, survey
from vitinit.initializers.errors import VitinitError, brief, explain, unknown_name
from vitinit.initializers.plugins import INITIALIZERS, Registry, concrete, load, short_hash
from vitinit.initializers.transaction import named_tensors


@dataclass(frozen=True)
class Job:
    """Inputs of a method besides the model and its random numbers, and the callback for its progress."""

    progress: Callable[[int, int], None] = lambda done, total: None
    """Slow methods call it with the number of steps done and their total, for each layer that they solve; it raises
    where the run is to stop."""
    training_images: Callable[[int], Tensor] | None = None
    """Return at least the requested number of training images: B x C x H x W, normalised, not augmented, on the model's
    device. In a run they are drawn with replacement, by the run's seed alone. From a user's batch they are drawn
    without replacement; a batch that is too small is repeated as a whole."""

    def images(self, count: int, user: str) -> Tensor:
        """Return training images for a method that cannot do without them.

        Raises:
            VitinitError: there are none; names their user, as in "method 'NAME'".
        """
        if self.training_images is None:
            raise VitinitError(f"{user} needs training images: vitinit.initialize(..., batch=images)")
        return self.training_images(count)


@dataclass(frozen=True)
class Aim:
    """Attention that a method aims at; used for measuring only."""

    targets_LHNN: Tensor
    """Targets H of the layers that have one, from the input on: layers x heads x N x N, entries 0 or 1."""
    pseudo_ND: Tensor | None = None
    """The pseudo-input that the first layer was solved on; None: the LayerNormed position embedding."""


Kind = Literal["base", "method"]
WeightName = Literal["query", "key", "value", "proj", "query_bias", "proj_bias", "mlp_in", "mlp_out", "position"]
"""W_q, W_k, W_v and W_proj, two of their biases, first and last Linear of the MLP that is in one block with attention,
and the position embedding of the model."""


class Parameters(BaseModel):
    """Base of classes with validated fields: initialisers, and parameters that have fields of their own."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _as_written(cls, given: Any, build: Callable[[Any], Any]) -> Any:
        """Refuse text for a number, and a boolean for a number or the other way round, which pydantic converts."""
        built = build(given)
        if "name" in type(built).model_fields:  # it tells classes apart, and is dumped where others at defaults are not
            built.model_fields_set.add("name")
        for name, value in dict(given).items():
            field = getattr(built, name)
            number, boolean = isinstance(field, int | float), isinstance(field, bool)
            if number and (isinstance(value, str) or isinstance(value, bool) != boolean):
                raise ValueError(f"{name} must be {'true or false' if boolean else 'a number'}, not {brief(value)}")
        return built


class Initializer(Parameters):
    """A method or a base. Subclass it, decorate the class with `@register`, implement `apply`."""

    name: ClassVar[str]
    """Name in grids and on the command line."""
    kind: ClassVar[Kind] = "method"
    """A base sets every parameter of a model; a method overwrites some of them afterwards."""
    touches: ClassVar[tuple[str, ...]] = ()
    """Shell patterns of the names of parameters and buffers that `apply` may change."""
    sets: ClassVar[tuple[WeightName, ...]] = ()
    """Parts of a model with attention that `apply` may change, whatever they are called there. To change what neither
    names is an error."""
    plain_logits: ClassVar[bool] = False
    """True where queries and keys must meet without a norm, which would undo the size of W_q and W_k."""
    one_stream: ClassVar[bool] = False
    """True for the blocks of one residual stream: several models in one are refused, as encoder and decoder."""
    deterministic: ClassVar[bool] = False
    """True when `apply` draws nothing from the generator at the default parameters."""

    tiny: ClassVar[dict[str, Any]] = {}
    """Smallest useful parameters: contract tests run a slow or needy method with them."""

    def check(self, model: nn.Module) -> None:
        """Refuse a model that the method is not made for, before anything is changed.

        Raises:
            VitinitError: the model lacks what the method needs. By default that is: every parameter that `touches`
                names; attention, where the method `sets` parts of it; an MLP beside it, where it `sets` W_2; one
                residual stream for a method of `one_stream`.
        """
        if "mlp_out" in self.sets:
            self.blocks_of(model)
        elif self.sets:
            self.attention_of(model, self.plain_logits)
        elif self.touches and not any(fnmatch.filter(named_tensors(model), pattern) for pattern in self.touches):
            raise VitinitError(
                f"{self.described} sets {', '.join(self.touches)}, and {type(model).__name__} has none of them"
            )
        if self.one_stream and not family(model):
            towers = {re.sub(r"\d+", "#", layer.name): layer.name for layer in attention_layers(model)}
            if len(towers) > 1:
                raise VitinitError(
                    f"{self.described} is for the blocks of one residual stream, and {type(model).__name__} has blocks "
                    f"in several places, as of {' and '.join(map(repr, towers.values()))}: give one of them"
                )

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.model_dump(exclude_unset=True).items())
        return f"{self.name}({given})" if given else self.name

    @property
    def described(self) -> str:
        """Kind and name, as messages begin."""
        return f"{self.kind} {self.name!r}"

    def notes(self, model: nn.Module) -> list[str]:
        """Return remarks on the weights as set, and on what it leaves alone: phrases for `vitinit.Report`."""
        return []

    def attention_of(self, model: nn.Module, plain_logits: bool = False) -> list[AttentionLayer]:
        """Return the attention layers of a model.

        Args:
            model: of any kind.
            plain_logits: as the attribute of this name.

        Raises:
            VitinitError: it has none, or some for which no method is made, or not this one.
        """
        try:
            layers = attention_layers(model)
        except VitinitError as error:
            raise VitinitError(f"{self.described}: {error}") from None
        for layer in layers:
            if plain_logits and layer.normalised:
                raise VitinitError(
                    f"{self.described}: {type(model).__name__} normalises queries and keys ({layer.name}), so "
                    "that the size of W_q and W_k has no effect; choose a method or parameters that leave them alone"
                )
        return layers

    def blocks_of(self, model: nn.Module) -> list[AttentionLayer]:
        """Return the attention layers of a model where one MLP of two ends is in one block with each.

        Raises:
            VitinitError: there is no attention for this method, or some without such an MLP.
        """
        layers = self.attention_of(model)
        for layer in layers:
            if not layer.mlp:
                raise VitinitError(
                    f"{self.described}: no MLP is in one block with attention {layer.name!r}, with one Linear "
                    f"that ends it; Linears beside this attention: {', '.join(layer.beside) or 'none'}"
                )
        return layers

    def freeze(self, model: nn.Module) -> None:
        """Exclude from training, by `requires_grad`, parameters that the method keeps as they start; default: none.

        The benchmark calls it before it makes the optimiser: after `apply`, or, where a run resumes, in place of it.
        `vitinit.initialize` does not; `vitinit.Report.untrained` lists the parameters instead.
        """

    @abstractmethod
    def apply(self, model: nn.Module, generator: Generator, job: Job) -> Tensor | Aim | None:
        """Set the parameters in place, without gradients; every random number comes from `generator` (of the CPU).

        Returns:
            The attention targets H of every layer (heads x N x N, entries 0 or 1) when the method aims at attention
            maps, else None. They are only measured against. An `Aim` where layers differ, or where the pseudo-input is
            another than the LayerNormed position embedding.
        """


def changed_by(
    initializer: Initializer, model: nn.Module, before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[str]:
    """Names of the parameters and buffers whose values are not those of before.

    Args:
        initializer: what has been applied.
        model: as it is now.
        before: its `fingerprints` until then.
        after: those of now.

    Raises:
        VitinitError: one that neither `touches` nor `sets` names, or that was set (by a base: any parameter) and has
            values that are not finite.
    """
    changed = [name for name, value in after.items() if value != before[name]]
    own = {position_name(model)} if "position" in initializer.sets else set()
    for layer in survey(model).layers if initializer.sets else ():
        own.update(layer.names_of(*{*initializer.sets} - {"position"}))
    for name in changed:
        if name not in own and not any(fnmatch.fnmatchcase(name, pattern) for pattern in initializer.touches):
            raise VitinitError(f"initializer {initializer.name!r} changed {name!r}, which its `touches` does not name")
    tensors = named_tensors(model)
    of_base = dict(model.named_parameters()) if initializer.kind == "base" else {}
    for name in dict.fromkeys((*changed, *of_base)):
        if not tensors[name].isfinite().all():
            raise VitinitError(f"initializer {initializer.name!r} left values that are not finite in {name!r}")
    return changed


def check_class(cls: type[Initializer], where: str = "") -> None:
    """Refuse a class that lacks what every initialiser says of itself."""
    missing = sorted({"name"} - {*dir(cls)} | cls.__abstractmethods__)
    if not (cls.touches or cls.sets):
        missing.append("touches or sets")
    if missing:
        raise VitinitError(f"initializer class {cls.__qualname__} needs {', '.join(missing)}")
    if not (isinstance(cls.touches, tuple) and isinstance(cls.sets, tuple) and {*cls.sets} <= {*get_args(WeightName)}):
        raise VitinitError(
            f"initializer class {cls.__qualname__}: `touches` must be a tuple of patterns, `sets` one of some of "
            f"{', '.join(get_args(WeightName))}"
        )
    source_hash(cls)


REGISTRY = Registry(
    "initializer",
    (f"{__package__}.bases", f"{__package__}.methods"),
    group=INITIALIZERS,
    wanted="an Initializer class",
    accepts=concrete(Initializer),
    check=check_class,
)
AnyInitializer = TypeVar("AnyInitializer", bound=type[Initializer])


def register(cls: AnyInitializer) -> AnyInitializer:
    """Class decorator: make an initialiser available under its `name`.

    Raises:
        VitinitError: the class lacks a name, `touches` or a method that every initialiser implements, has a `sets` of
            unknown parts, or the name is taken by another class; or it is no initialiser.
    """
    if not isinstance(cls, type) or not issubclass(cls, Initializer):
        raise VitinitError(
            "@register is for an Initializer; others have @register_augmentation(NAME) and @register_optimizer(NAME)"
        )
    REGISTRY.put(cls)
    return cls


@cache
def source_hash(cls: type[Initializer]) -> str:
    """Return `short_hash` of the file of a class, without what it imports; empty where it is of no file.

    As it is when the class is registered: its file may change later, what is imported does not.
    """
    try:
        return short_hash(Path(inspect.getfile(cls)).read_bytes())
    except (TypeError, OSError):  # a class in a shell
        return ""


def names(kind: Kind | None = None) -> list[str]:
    """Names of all initialisers, or of the bases or the methods alone."""
    return [name for name, cls in REGISTRY.by_name().items() if kind in (None, cls.kind)]


def get(name: str, kind: Kind | None = None) -> type[Initializer]:
    """The class behind a name or a dotted path `package.module:Class`.

    Raises:
        VitinitError: nothing is called that, or it is of the other kind.
    """
    REGISTRY.search()
    cls = REGISTRY.load(load(name), name) if ":" in name else REGISTRY.known.get(name)
    if cls is None:
        raise unknown_name(kind or "initializer", name, names(kind))
    if kind not in (None, cls.kind):
        raise VitinitError(f"initializer {name!r} is a {cls.kind}, not a {kind}; the {kind}s: {', '.join(names(kind))}")
    return cls


def build(name: str, params: Mapping[Any, Any], kind: Kind | None = None) -> Initializer:
    """An initialiser with checked parameters.

    Raises:
        VitinitError: unknown name; unknown parameter or bad value, with what is allowed.
    """
    cls = get(name, kind)
    try:
        return cls.model_validate(params)
    except ValidationError as error:
        raise explain(error, f"initializer {name!r}", cls) from None


def build_named(named: Mapping[Any, Any], kind: Kind | None = None) -> Initializer:
    """`build`, from a mapping with `name` and parameters."""
    return build(named["name"], {key: value for key, value in named.items() if key != "name"}, kind)


@dataclass(frozen=True)
class Known:
    """A base or a method."""

    name: str
    kind: Kind
    parameters: dict[str, Any]
    """Each that has a default, with it."""
    papers: tuple[str, ...]
    """arXiv numbers in the first paragraph of its docstring; none where it is ours or a library's."""
    text: str
    """Description in one paragraph."""

    def __str__(self) -> str:
        papers = f" [arXiv {', '.join(self.papers)}]" if self.papers else ""
        line = (
            f"{self.kind} {self.name}({', '.join(f'{name}={value!r}' for name, value in self.parameters.items())})"
            f"{papers}: {self.text.splitlines()[0]}"
        )
        return textwrap.fill(line, 80, subsequent_indent="    ", break_on_hyphens=False)


class Catalogue(list[Known]):
    """List that prints one entry after the other."""

    def __repr__(self) -> str:
        return "\n".join(map(str, self))


def catalogue(kind: Kind | None = None) -> Catalogue:
    """All bases and methods, with their parameters and papers; or those of one kind. It prints one after the other.

    Installed packages add theirs by the entry point group `vitinit.initializers`.
    """
    listed = Catalogue()
    for cls in map(get, names(kind)):
        text, parameters = cls.__doc__ or "", cls.model_construct().model_dump(mode="json")
        papers = tuple(re.findall(r"\b\d{4}\.\d{4,5}\b", text.partition("\n\n")[0]))
        listed.append(Known(cls.name, cls.kind, parameters, papers, text))
    return listed
