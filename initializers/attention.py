"""One view on the attention of every model that an adapter knows."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from vitinit.initializers.adapter import Attention, Part, TokenGrid, resolve
from vitinit.initializers.adapters import Family, description_of, families
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.measure import Softmaxes

AT_ONCE = 8
"""Images whose attention maps are held at once: those of all would not fit where there are many tokens."""
HEADS = "num_heads heads num_attention_heads n_heads nhead n_head num_head nheads"
ATTENTION = re.compile(r"att(entio)?n|mhsa", re.IGNORECASE)
"""Attributes that hold the number of heads, and a pattern in class names: unknown attention is recognised by these."""
HELP = "write a vitinit.adapters.Adapter: docs/use.md, 'A model of your own'"
UNKNOWN = f" that an adapter knows: without attention only a base fits; for attention of your own {HELP}"


@dataclass(frozen=True)
class AttentionLayer:
    """Weights of one attention layer as views: writing into them (under `torch.no_grad`) changes the model.

    H heads of d features, width D. A token x is a row: queries are x W_q^T, and the layer maps x to
    sum over heads of A_h x W_v,h^T W_proj,h^T. W_v and W_proj may have another d than W_q and W_k.
    """

    name: str
    module: Any
    """The attention module."""
    paths: Attention
    """Paths to the weights in it."""
    block: nn.Module | None = None
    """Block that holds the module, unless that is the whole model."""

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return int(resolve(self.module, self.paths.heads))

    @property
    def gated(self) -> bool:
        """True for gated positional self-attention (ConViT)."""
        return self.paths.gated

    def weight(self, part: Part) -> Tensor:
        """The rows of a part of `paths`; a view."""
        return resolve(self.module, part.weight).unflatten(0, (part.of, -1))[part.index]

    def bias(self, part: Part) -> Tensor | None:
        """Its bias, where it has one; a view. A bias shorter than the weight is this part's alone."""
        bias, weight = resolve(self.module, part.bias), resolve(self.module, part.weight)
        if bias is None or len(bias) != len(weight):
            return bias
        return bias.unflatten(0, (part.of, -1))[part.index]

    @property
    def query_HdD(self) -> Tensor:
        """W_q, heads x d x D."""
        return self.weight(self.paths.query).unflatten(0, (self.heads, -1))

    @property
    def key_HdD(self) -> Tensor:
        """W_k, heads x d x D."""
        return self.weight(self.paths.key).unflatten(0, (self.heads, -1))

    @property
    def value_DD(self) -> Tensor:
        """W_v, H d x D; rows h*d to (h+1)*d belong to head h."""
        return self.weight(self.paths.value)

    @property
    def proj_DD(self) -> Tensor:
        """W_proj, D x H d; columns h*d to (h+1)*d belong to head h."""
        return self.weight(self.paths.proj)

    @property
    def window(self) -> TokenGrid | None:
        """Rows and columns of the tokens that see each other, where these have a relative position bias."""
        window = resolve(self.module, self.paths.window)
        return tuple(window) if window else None

    @property
    def normalised(self) -> bool:
        """True where queries and keys are normalised (QK-norm): the size of W_q and W_k then has no effect."""
        return any(resolve(self.module, path) is not None for path in (self.paths.query_norm, self.paths.key_norm))

    @property
    def beside(self) -> dict[str, nn.Linear]:
        """The Linears of the block that are no part of attention, by their names in the model.

        Empty where attention is in no block of its own.
        """
        if self.block is None:
            return {}
        home, own = self.name.rpartition(".")[0], {self.block, *self.module.modules()}
        others = {f"{home}.{path}": module for path, module in self.block.named_modules() if module not in own}
        if any(map(description_of, others.values())):
            return {}  # a list of attention layers, or a block of two
        return {path: module for path, module in others.items() if isinstance(module, nn.Linear)}

    @property
    def mlp(self) -> dict[str, nn.Linear]:
        """The Linears of the MLP from D to D channels in the block: W_1 first, W_2 last.

        All but the last go from the width to the hidden features, or to twice as many where half of these are gates.
        Empty where there is none, or where other Linears are beside it (experts, adapters, gates): what ends the branch
        is then not known.
        """
        linears, width = self.beside, self.query_HdD.shape[-1]
        if len(linears) < 2:
            return {}
        *first, last = linears.values()
        shapes = {(last.in_features, width), (2 * last.in_features, width)}
        fits = last.out_features == width and shapes.issuperset(tuple(linear.weight.shape) for linear in first)
        # a Linear from D to D is a gate behind the MLP as well as a part of a narrow one: two of them say nothing else
        narrow = len(first) > 1 and last.in_features == width
        return linears if fits and not narrow else {}

    def names_of(self, *parts: str) -> list[str]:
        """Names, in the model, of the tensors that hold these parts: those of `initializers.registry.Part`."""
        names = []
        for part in parts:
            if part in ("mlp_in", "mlp_out"):
                linears = list(self.mlp)
                names += [f"{linears[0 if part == 'mlp_in' else -1]}.{end}" for end in ("weight", "bias") if linears]
                continue
            held = getattr(self.paths, part.removesuffix("_bias"))
            path = held.bias if part.endswith("_bias") else held.weight
            names += [f"{self.name}.{path}".lstrip(".")] if path else []
        return list(dict.fromkeys(names))

    def tokens(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        """Return the tokens among the inputs of a forward pass, B x N x D."""
        x_BND = next(value for value in (*inputs, *named.values()) if isinstance(value, Tensor)).detach()
        if x_BND.ndim != 3:
            raise VitinitError(f"attention {self.name!r} makes its windows itself, so that its input is no tokens")
        return x_BND if getattr(self.module, "batch_first", True) else x_BND.transpose(0, 1)

    @torch.no_grad()
    def attention(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the module's own attention map on its inputs, B x H x N x N, caught where it computes its softmax.

        Where attention is in windows, B is their number and N that of their tokens. GPSA has two softmaxes,
        and gives their mixture.
        """
        if "forward" in vars(self.module):
            raise VitinitError(f"attention {self.name!r} has a forward of its own, set on this module: not measured")
        if self.gated:
            if self.module.rel_indices.shape[1] != inputs[0].shape[1]:
                self.module.rel_indices = self.module.get_rel_indices(inputs[0].shape[1])
            return self.module.get_attention(inputs[0])
        if isinstance(self.module, nn.MultiheadAttention) and len(inputs) == 1:
            inputs *= 3
        maps = []
        with Softmaxes(lambda _, map_BHNN, dim: maps.append(map_BHNN)):
            self.module.forward(*inputs, **named)
        square = [map_BHNN for map_BHNN in maps if map_BHNN.shape[-1] == map_BHNN.shape[-2]]
        if not square:
            raise VitinitError(f"attention {self.name!r} computes no softmax between tokens that PyTorch shows")
        return square[0].reshape(-1, self.heads, *square[0].shape[-2:])


class Survey(NamedTuple):
    """All attention in a model, from the input on."""

    layers: list[AttentionLayer]
    """Attention from token to token."""
    pools: list[AttentionLayer]
    """Attention from a learned query to tokens: bases set its matrices as what they are, methods leave it alone."""
    unknown: list[str]
    """Attention that no adapter describes, each with the reason."""


def survey(model: nn.Module) -> Survey:
    """Return the attention in a model. What looks like attention, as far as names tell, is unknown.

    Modules inside of known attention are passed over.
    """
    layers, pools, unknown = list[AttentionLayer](), list[AttentionLayer](), list[str]()
    known, suspects = list[str](), dict[str, str]()
    for name, module in model.named_modules():
        if any(not outer or name.startswith(f"{outer}.") for outer in known):
            continue
        description, class_name = description_of(module), type(module).__name__
        counts = [value for key, value in vars(module).items() if key in HEADS.split() and isinstance(value, int)]
        called_so = bool(ATTENTION.search(class_name))
        if description:
            known.append(name)
        if isinstance(description, Attention):
            home = name.rpartition(".")[0]
            layer = AttentionLayer(name, module, description, model.get_submodule(home) if home else None)
            (pools if description.pools else layers).append(layer)
        elif description:
            unknown.append(f"attention {name!r} ({class_name}): {description}")
        elif called_so or counts:
            linears = [inner for inner in module.modules() if isinstance(inner, nn.Linear | nn.Conv2d)]
            widths = [inner.in_features if isinstance(inner, nn.Linear) else inner.in_channels for inner in linears]
            if widths and (called_so or max(counts) <= min(widths)):
                suspects[name] = class_name
    for name, class_name in suspects.items():
        inner = f"{name}.".lstrip(".")
        if not any(other != name and other.startswith(inner) for other in (*known, *suspects)):
            unknown.append(
                f"attention {name!r} is of a kind that no adapter knows ({class_name}); if it attends from token to "
                f"token, with W_q, W_k and W_v each in rows of their own, {HELP}"
            )
    return Survey(layers, pools, unknown)


def attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """Every attention layer of a model that attends from token to token, from the input on.

    Raises:
        VitinitError: the model has none, or some for which no method is made.
    """
    layers, _, unknown = survey(model)
    if unknown:
        raise VitinitError(f"{type(model).__name__}: {unknown[0]}")
    if not layers:
        raise VitinitError(f"{type(model).__name__} has no attention layer{'' if families(model) else UNKNOWN}")
    return layers


def family(model: nn.Module) -> Family | None:
    """The model of a known family that this is or holds; None where there is none.

    Raises:
        VitinitError: it holds several.
    """
    nested = families(model)
    known = [
        outer
        for outer in nested
        if not any(inner.path.startswith(outer.inside) for inner in nested if inner is not outer)
    ]
    if len(known) > 1:
        raise VitinitError(
            f"{type(model).__name__} holds {len(known)} models ({known[0].path!r} and {known[1].path!r}): give one of "
            "them"
        )
    return known[0] if known else None


def token_grid(model: nn.Module) -> TokenGrid:
    """Rows and columns of the token grid."""
    known = family(model)
    grid = resolve(model, "patch_embed.grid_size")  # timm's names, whatever the model
    if known and known.adapter.grid:
        grid = known.adapter.grid(known.model)
    if not grid:
        raise VitinitError(f"{type(model).__name__} has no token grid that an adapter knows; {HELP}")
    return int(grid[0]), int(grid[1])


def seen_grids(model: nn.Module) -> list[TokenGrid]:
    """Rows and columns of the tokens that see each other in each layer: the token grid, or a window."""
    return [layer.window or token_grid(model) for layer in attention_layers(model)]


def position_name(model: nn.Module) -> str:
    """Return the name that the position embedding has, or would have, in a model."""
    known = family(model)
    return known.inside + (known.adapter.position or "pos_embed") if known else "pos_embed"


def position_embedding(model: nn.Module, class_row: bool = False) -> Tensor:
    """The position embedding of the patch tokens, N x D, row-major over the token grid; a view.

    With `class_row` the rows of tokens without a place (class, registers), where there are some, stand before them.

    Raises:
        VitinitError: the model has none.
    """
    name, what = position_name(model), type(model).__name__
    embedding = resolve(model, name)
    if not isinstance(embedding, Tensor):
        raise VitinitError(f"{what} has no absolute position embedding {name!r}")
    places_ND = embedding.detach()[0] if embedding.ndim == 3 else embedding.detach()
    rows, columns = token_grid(model)
    if places_ND.ndim != 2 or len(places_ND) < rows * columns:
        raise VitinitError(
            f"{what} has a position embedding of {tuple(embedding.shape)}, which is not one row for each of {rows} x "
            f"{columns} tokens"
        )
    return places_ND[0 if class_row else len(places_ND) - rows * columns :]


def rotary(model: nn.Module) -> bool:
    """Return True for a model with rotary position embeddings."""
    known = family(model)
    return known is not None and resolve(known.model, known.adapter.rotary) is not None


@contextmanager
def evaluated(model: nn.Module, hooks: Sequence[RemovableHandle] = ()) -> Iterator[None]:
    """Set evaluation mode; afterwards every module has its mode and its buffers again, and the hooks are removed.

    A forward pass may replace a buffer, as ConViT's does with the offsets of its tokens.
    """
    held = [(module, module.training, dict(module._buffers)) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode, buffers in held:
            module.training = mode
            module._buffers.update(buffers)
