"""One view on the attention of every model that an adapter knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from vitinit.initializers.adapter import Attention, Part, found, lacking, required
from vitinit.initializers.adapters import Family, families, kind_of
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.measure import Softmaxes

AT_ONCE = 8
"""Images whose attention maps are held at once: those of all would not fit where there are many tokens."""
ENDS = ("weight", "bias")
"""Parameters of a Linear."""
HEADS = (
    *("num_heads", "heads", "num_attention_heads", "n_heads", "nhead", "n_head", "num_head", "nheads"),
    "attention_heads",
)
"""Attributes that hold the number of heads.

Attention that no adapter knows is noticed by these, by its class's name, or by those of its Linears."""
ATTENTION = re.compile(r"att(entio)?n|mhsa", re.IGNORECASE)
"""Pattern in the class names of attention modules."""
PROBES = ("probe", "query", "queries", "latent", "latents")
"""Names of the learned tokens of a pooling head: attention of a module that has such a parameter
does not attend from token to token."""
HELP = "write a vitinit.Adapter: docs/use.md, 'A model of your own'"
PATCHED = (
    "has a forward of its own, set on the instance: say module.same_attention = True if it calls its parts as its "
    "class does"
)
UNKNOWN = f" that an adapter knows: without attention only a base fits; for attention of your own {HELP}"


class RelativeBias(NamedTuple):
    """Relative position bias of one attention layer."""

    table_EH: Tensor
    """One value an entry and head; a view."""
    index_NN: Tensor
    """Entry that belongs to query and key, tokens without a place left out."""
    window: tuple[int, int]
    whole_NN: Tensor
    """`index_NN` with the tokens without a place, which come first."""


@dataclass(frozen=True)
class AttentionLayer:
    """Weights of one attention layer as views: writing into them (under `torch.no_grad`) changes the model.

    H heads of d features, width D. A token x is a row: queries are x W_q^T, and the layer maps x to
    sum over heads of A_h x W_v,h^T W_proj,h^T. W_v and W_proj may have another d than W_q and W_k.
    """

    name: str
    module: Any
    """The attention module."""
    kind: Attention
    """Paths to the weights in it."""
    block: nn.Module | None = None
    """Block that holds the module, unless that is the whole model."""

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return int(required(self.module, self.kind.heads))

    @property
    def gated(self) -> bool:
        """True for gated positional self-attention (ConViT)."""
        return self.kind.gated

    def weight(self, part: Part) -> Tensor:
        """The rows of a part of `kind`; a view."""
        return required(self.module, part.weight).unflatten(0, (part.of, -1))[part.index]

    def bias(self, part: Part) -> Tensor | None:
        """Its bias, where it has one; a view. One that is shorter than the weights is of this part alone."""
        bias, weight = found(self.module, part.bias), found(self.module, part.weight)
        if bias is None or len(bias) != len(weight):
            return bias
        return bias.unflatten(0, (part.of, -1))[part.index]

    @property
    def query_HdD(self) -> Tensor:
        """W_q, heads x d x D."""
        return self.weight(self.kind.query).unflatten(0, (self.heads, -1))

    @property
    def key_HdD(self) -> Tensor:
        """W_k, heads x d x D."""
        return self.weight(self.kind.key).unflatten(0, (self.heads, -1))

    @property
    def value_DD(self) -> Tensor:
        """W_v, H d x D; rows h*d to (h+1)*d belong to head h."""
        return self.weight(self.kind.value)

    @property
    def proj_DD(self) -> Tensor:
        """W_proj, D x H d; columns h*d to (h+1)*d belong to head h."""
        return self.weight(self.kind.proj)

    @property
    def talking(self) -> list[nn.Linear]:
        """The Linears that mix heads; empty where there are none."""
        mixers = (found(self.module, path) for path in self.kind.talking)
        return [mixer for mixer in mixers if mixer is not None]

    @property
    def relative_bias(self) -> RelativeBias | None:
        """Relative position bias, where there is one."""
        table_EH, index = (found(self.module, path) for path in (self.kind.table, self.kind.table_index))
        if table_EH is None:
            return None
        rows, columns = found(self.module, self.kind.window)
        whole_NN, tokens = index.view(round(index.numel() ** 0.5), -1), rows * columns
        return RelativeBias(table_EH, whole_NN[-tokens:, -tokens:], (rows, columns), whole_NN)

    @property
    def normalised(self) -> bool:
        """True where queries and keys are normalised (QK-norm): the size of W_q and W_k then has no effect."""
        return any(found(self.module, path) is not None for path in (self.kind.query_norm, self.kind.key_norm))

    @property
    def proj_follows(self) -> bool:
        """True where W_proj reads the output of the heads, with no norm and no gate between."""
        return all(found(self.module, path) is None for path in self.kind.before_proj)

    @property
    def beside(self) -> dict[str, nn.Linear]:
        """The Linears of the block that are no part of attention, by their names in the model.

        Empty where attention is in no block of its own.
        """
        return linears_beside(self.name, self.module, self.block)

    @property
    def mlp(self) -> dict[str, nn.Linear]:
        """The Linears of the MLP from D to D channels in the block: W_1 first, W_2 last.

        Empty where there is none, or where other Linears are beside it (experts, adapters, gates): what ends the branch
        is then not known.
        """
        return as_mlp(self.beside, self.query_HdD.shape[-1])

    def names_of(self, *parts: str) -> list[str]:
        """Names, in the model, of the tensors that hold these parts: those of `initializers.registry.Part`."""
        names = []
        for part in parts:
            if part in ("mlp_in", "mlp_out"):
                linears = list(self.mlp)
                names += [f"{linears[0 if part == 'mlp_in' else -1]}.{end}" for end in ENDS if linears]
                continue
            held = getattr(self.kind, part.removesuffix("_bias"))
            if part == "talking":
                paths = [f"{path}.{end}" for path in held for end in ENDS]
            elif isinstance(held, Part):
                paths = [held.bias if part.endswith("_bias") else held.weight]
            else:
                paths = [held]
            names += [f"{self.name}.{path}".lstrip(".") for path in paths if path]
        return list(dict.fromkeys(names))

    def tokens(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        """Return the tokens among the inputs of a forward pass, B x N x D."""
        x_BND = next(one for one in (*inputs, *named.values()) if isinstance(one, Tensor)).detach()
        if x_BND.ndim != 3:
            raise VitinitError(f"attention {self.name!r} makes its windows itself, so that its input is no tokens")
        return x_BND if getattr(self.module, "batch_first", True) else x_BND.transpose(0, 1)

    def normed(self, x_BND: Tensor) -> Tensor:
        """Return the input of W_q and W_k: that of the module, after its norm where it has one inside."""
        norm = found(self.module, self.kind.norm)
        return norm(x_BND) if norm else x_BND

    @torch.no_grad()
    def attention(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the module's own attention map on its inputs, B x H x N x N, caught where it computes its softmax.

        Where attention is in windows, B is their number and N that of their tokens. Linears that mix heads after the
        softmax are left out: what they give is no share of anything. GPSA has two softmaxes, and gives their mixture.
        """
        if self.gated:
            if self.module.rel_indices.shape[1] != inputs[0].shape[1]:
                self.module.rel_indices = self.module.get_rel_indices(inputs[0].shape[1])
            return self.module.get_attention(inputs[0])
        if isinstance(self.module, nn.MultiheadAttention) and len(inputs) == 1:
            inputs *= 3
        maps: list[Tensor] = []
        with Softmaxes(lambda _, map_BHNN, dim: maps.append(map_BHNN)):
            self.module.forward(*inputs, **named)
        square = [one for one in maps if one.shape[-1] == one.shape[-2]]
        if not square:
            raise VitinitError(f"attention {self.name!r} computes no softmax between tokens that PyTorch shows")
        return square[0].reshape(-1, self.heads, *square[0].shape[-2:])


def linears_beside(name: str, module: nn.Module, block: nn.Module | None) -> dict[str, nn.Linear]:
    """`AttentionLayer.beside`, of attention of any kind."""
    if block is None:
        return {}
    home, inner = name.rpartition(".")[0], set(module.modules())
    others = [part for part in block.modules() if part not in inner and part is not block]
    if any(isinstance(kind_of(part), Attention) for part in others):
        return {}  # a list of attention layers, or a block of two
    parts = block.named_modules()
    return {f"{home}.{path}": part for path, part in parts if isinstance(part, nn.Linear) and part not in inner}


def as_mlp(linears: dict[str, nn.Linear], width: int) -> dict[str, nn.Linear]:
    """Linears that are one MLP from `width` to `width` channels, in their order; empty where they are not.

    All but the last go from the width to the hidden features, or to twice as many where half of these are gates.
    """
    if len(linears) < 2:
        return {}
    *first, last = linears.values()
    hidden = (last.in_features, 2 * last.in_features)
    fits = all(one.in_features == width and one.out_features in hidden for one in first)
    # a Linear from D to D is a gate behind the MLP as well as a part of a narrow one: two of them say nothing else
    narrow = len(first) > 1 and last.in_features == width
    return linears if fits and last.out_features == width and not narrow else {}


class _Survey(NamedTuple):
    layers: list[AttentionLayer]
    beside: list[str]
    """Names of attention modules that do not attend from token to token."""
    refused: str
    """Reason for refusing the first attention that no method is made for; empty where there is none."""


def _survey(model: nn.Module) -> _Survey:
    """One walk: modules inside of known attention are passed over, and what only looks like attention is refused."""
    layers: list[AttentionLayer] = []
    beside, known, suspects, refused = list[str](), list[str](), list[tuple[str, str]](), list[str]()
    ruled = {
        f"{family.path}.{name}".lstrip(".")
        for family in families(model)
        for name, _ in family.model.named_parameters()
        if family.adapter.rule(name) is not None
    }
    for name, module in model.named_modules():
        if any(not outer or name.startswith(f"{outer}.") for outer in known):
            continue
        kind, what = kind_of(module), type(module).__name__
        if kind is None:
            own = {f"{name}.{one}".lstrip(".") for one, _ in module.named_parameters()}
            if _suspect(module) and own - ruled:
                suspects.append((name, what))
            continue
        known.append(name)
        home = name.rpartition(".")[0]
        block = model.get_submodule(home)
        if kind is False:
            beside.append(name)
        elif isinstance(kind, str):
            refused.append(f"attention {name!r} ({what}): {kind}")
        elif patched(module):
            refused.append(f"attention {name!r} ({what}) {PATCHED}")
        elif home and patched(block):
            refused.append(f"the block {home!r} ({type(block).__name__}), which has attention, {PATCHED}")
        elif any(isinstance(block._parameters.get(one), Tensor) for one in PROBES):
            beside.append(name)
        else:
            layers.append(AttentionLayer(name, module, kind, block if home else None))
    for name, what in suspects:
        if not any(one.startswith(f"{name}." if name else "") for one in known):
            refused.append(f"attention {name!r} is of a kind that no adapter knows ({what}); {HELP}")
    return _Survey(layers, beside, refused[0] if refused else "")


def patched(module: nn.Module) -> bool:
    """Return True for a module whose forward was set on the instance, and that does not say `same_attention = True`."""
    return "forward" in vars(module) and not getattr(module, "same_attention", False)


def _suspect(module: nn.Module) -> bool:
    """Return True for a module with a weight that looks like attention, as far as names tell."""
    if all(parameter.ndim < 2 for parameter in module.parameters()):
        return False
    if any(isinstance(vars(module).get(heads), int) for heads in HEADS):
        return True
    return bool(guessed(module)) or bool(ATTENTION.search(type(module).__name__))


TRIPLES = (
    *(("q", "k", "v"), ("wq", "wk", "wv"), ("w_q", "w_k", "w_v"), ("to_q", "to_k", "to_v")),
    *(("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("queries", "keys", "values")),
    *(("q_linear", "k_linear", "v_linear"), ("linear_q", "linear_k", "linear_v")),
    *(("query_proj", "key_proj", "value_proj"), ("proj_q", "proj_k", "proj_v")),
)
ALL_THREE = re.compile(r".*qkv.*|c_attn|in_proj|query_key_value")
PROJ = ("proj", "out_proj", "o_proj", "c_proj", "to_out", "wo", "w_o", "out", "dense", "fc_out", "projection")


def _every_token_alone(module: nn.Module) -> bool:
    """Return True for a Linear, and for a 1 x 1 convolution."""
    return isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.weight[0, 0].numel() == 1)


def guessed(module: nn.Module) -> dict[str, Part]:
    """Return W_q, W_k and W_v of attention that no adapter knows, by the names of its Linears or 1 x 1 convolutions.

    Enough for a base, which sets them by their sizes. Empty where there is no such attention.
    """
    linears = {name.lower(): name for name, one in module.named_children() if isinstance(one, nn.Linear)}
    at_once = {name.lower(): name for name, one in module.named_children() if _every_token_alone(one)}

    def part(name: str, index: int = 0, of: int = 1) -> Part:
        return Part(f"{at_once[name]}.weight", f"{at_once[name]}.bias", index, of)

    def rows(name: str) -> int:
        return len(getattr(module, at_once[name]).weight)

    triple = next((names for names in TRIPLES if all(name in linears for name in names)), None)
    joined = next((name for name in at_once if ALL_THREE.fullmatch(name) and rows(name) % 3 == 0), None)
    if triple:
        return dict(zip(("query", "key", "value"), map(part, triple), strict=True))
    if joined:
        return {one: part(joined, i, 3) for i, one in enumerate(("query", "key", "value"))}
    query = next((name for name in ("q", "to_q", "q_proj", "wq", "query") if name in linears), None)
    pair = next((name for name in ("kv", "to_kv", "kv_proj", "wkv") if name in linears and rows(name) % 2 == 0), None)
    if query and pair:
        return {"query": part(query), "key": part(pair, 0, 2), "value": part(pair, 1, 2)}
    return {}


def has_attention(model: nn.Module) -> bool:
    """Return True where the model has attention layers, of a known kind or not; a ConvMixer has none."""
    found = _survey(model)
    return bool(found.layers or found.refused)


def attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """Every attention layer of a model that attends from token to token, from the input on.

    Raises:
        VitinitError: the model has none, or some for which no method is made.
    """
    found = _survey(model)
    if found.refused:
        raise VitinitError(f"{type(model).__name__}: {found.refused}")
    if not found.layers:
        raise VitinitError(f"{type(model).__name__} has no attention layer{'' if families(model) else UNKNOWN}")
    return found.layers


def attention_beside(model: nn.Module) -> list[str]:
    """Names of attention modules that methods leave at their base, such as a pooling head."""
    return _survey(model).beside


def homes(model: nn.Module) -> dict[str, list[str]]:
    """Paths of every parameter that several modules share, or one module under several names, by the first of them."""
    paths: dict[nn.Parameter, list[str]] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        paths.setdefault(parameter, []).append(path)
    return {held[0]: held for held in paths.values() if len(held) > 1}


def conflict(model: nn.Module, changed: list[str]) -> list[str]:
    """Paths of the first of the changed parameters that must be one thing for several modules; empty: there is none.

    One attention module in several places has its own parameters everywhere: what is right in one is right in all.
    """
    attention = {
        f"{path}.": module
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(kind_of(module), Attention)
    }

    def use(path: str) -> object:
        home = next((home for home in attention if path.startswith(home)), None)
        return path if home is None else (attention[home], path.removeprefix(home))

    shared = (paths for paths in homes(model).values() if not set(changed).isdisjoint(paths))
    return next((paths for paths in shared if len(set(map(use, paths))) > 1), [])


def repeated(model: nn.Module, module: nn.Module) -> bool:
    """Return True for a module that stands in several places of a model."""
    return sum(one is module for _, one in model.named_modules(remove_duplicate=False)) > 1


def family(model: nn.Module) -> Family | None:
    """The model of a known family that this is or holds; None where there is none.

    Raises:
        VitinitError: it holds several.
    """
    known = families(model)
    if len(known) > 1:
        names = " and ".join(repr(one.path) for one in known[:2])
        raise VitinitError(f"{type(model).__name__} holds {len(known)} models ({names}): give one of them")
    return known[0] if known else None


def token_grid(model: nn.Module) -> tuple[int, int]:
    """Rows and columns of the token grid."""
    known = family(model)
    grid = found(model, "patch_embed.grid_size")  # timm's names, whatever the model
    if known and known.adapter.grid:
        grid = known.adapter.grid(known.model)
    if not grid:
        raise VitinitError(f"{type(model).__name__} has no token grid that an adapter knows; {HELP}")
    return int(grid[0]), int(grid[1])


def seen_grids(model: nn.Module) -> list[tuple[int, int]]:
    """Rows and columns of the tokens that see each other in each layer: the token grid, or a window."""
    biases = [layer.relative_bias for layer in attention_layers(model)]
    return [bias.window if bias else token_grid(model) for bias in biases]


def position_name(model: nn.Module) -> str:
    """Return the name that the position embedding has in models of this family; empty where the family has none."""
    known = family(model)
    if known and known.adapter.position:
        return f"{known.path}.{known.adapter.position}".lstrip(".")
    return "" if known else "pos_embed"


def position_embedding(model: nn.Module, class_row: bool = False) -> Tensor:
    """The position embedding of the patch tokens, N x D, row-major over the token grid; a view.

    With `class_row` the rows of tokens without a place (class, registers), where there are some, stand before them.

    Raises:
        VitinitError: the model has none.
    """
    name, what = position_name(model), type(model).__name__
    embedding = found(model, name)
    if not isinstance(embedding, Tensor):
        misspelt = name and not hasattr(model, name.partition(".")[0])  # None, which is there, says that it has none
        why = f" (its adapter: {lacking(model, name)})" if misspelt and families(model) else ""
        raise VitinitError(f"{what} has no absolute position embedding{why}")
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
    return known is not None and known.adapter.rotary(known.model)


@contextmanager
def evaluated(model: nn.Module, hooks: Sequence[RemovableHandle] = ()) -> Iterator[None]:
    """Set evaluation mode; afterwards every module has its mode and its buffers again, and the hooks are removed.

    A forward pass may replace a buffer, as ConViT's does with the offsets of its tokens.
    """
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(module._buffers, dict(module._buffers)) for module in model.modules() if module._buffers]
    try:
        model.eval()
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes:
            module.training = mode
        for home, held in buffers:
            home.update(held)
