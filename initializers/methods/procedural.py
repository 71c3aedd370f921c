"""Method `procedural`: blocks that were first trained to close brackets."""

import math
from copy import deepcopy
from typing import Any, ClassVar

import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Generator, Tensor, nn
from torch.nn import functional

from vitinit.initializers.attention import attention_layers, evaluated, rotary, token_grid
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job, register

NORM = 0.02
"""Euclidean norm of the vectors of symbols and places."""


@register
class Procedural(Initializer):
    """Procedural warm-up (arXiv 2511.13945; code: zlshinnick/weight-selection, symbolic_pretrain, v7): the blocks are
    trained on strings of nested brackets first, without an image.

    Each string has as many symbols as the model has patches, of `kinds` kinds of bracket; closing brackets are hidden
    with probability `hidden`, and a linear head on the last block predicts them. Symbols and places have fixed random
    vectors. AdamW, linear warm-up over the first fifteenth of the steps, then a cosine to 1e-6. Attention, MLPs and
    norms of the blocks are kept; embeddings, class token, last norm and head keep their base.

    Ours. 1,000 steps of 64 strings in place of 15,000 of 256. No class token in front of the strings. Symbols have
    random vectors like places, because the code's rows of an identity matrix need a width of 130. The last norm, which
    that code keeps, has no part in it.

    Traps. It trains: minutes on a CPU for the smallest models, and the result is kept for other runs of the same start
    and seed. Its bits depend on processor and number of threads, as those of any training do. Dropout is off.
    """

    name = "procedural"
    touches = ("*",)
    one_stream = True
    tiny: ClassVar = {"steps": 2, "strings": 8, "batch_size": 4, "kinds": 2}

    kinds: PositiveInt = 64
    """Kinds of bracket."""
    open: PositiveFloat = 0.6
    """Probability of a further opening bracket, where one may stand."""
    strings: PositiveInt = 20_000
    """Strings to train on, over and over."""
    hidden: PositiveFloat = 0.5
    """Share of the closing brackets that are hidden."""
    steps: PositiveInt = 1000
    batch_size: PositiveInt = 64
    lr: PositiveFloat = 2e-3
    weight_decay: NonNegativeFloat = 0.05

    def check(self, model: nn.Module) -> None:
        """Refuse models whose blocks do not map tokens to tokens by themselves."""
        layers = self.blocks_of(model)
        super().check(model)
        for layer in layers:
            why = "tells places apart itself" if layer.window or rotary(model) else ""
            x_BND = layer.query_HdD.new_zeros(2, 1 if why else math.prod(token_grid(model)), layer.query_HdD.shape[-1])
            try:
                with evaluated(model), torch.no_grad():
                    fits = _called(layer.block, x_BND).shape == x_BND.shape
            except Exception:  # of anyone's block
                fits = False
            if why or not fits:
                raise VitinitError(
                    f"method 'procedural' trains blocks on tokens alone: attention {layer.name!r} of "
                    f"{type(model).__name__} {why or 'is in a block that does not take and return these'}; choose "
                    "another method"
                )

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Train the blocks."""
        layers = attention_layers(model)
        blocks = nn.ModuleList([layer.block for layer in layers if layer.block])
        tokens = math.prod(token_grid(model))
        width = layers[0].query_HdD.shape[-1]
        generator = Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))
        strings_SN = brackets(self.strings, tokens, self.kinds, self.open, generator)
        trained = deepcopy(blocks)
        own = [parameter.requires_grad_() for parameter in trained.parameters()]
        device = own[0].device
        symbols_KD, places_ND = (
            (NORM * functional.normalize(torch.randn(count, width, generator=generator))).to(device)
            for count in (2 * self.kinds + 1, tokens)
        )
        limit = width**-0.5
        head_KD = torch.empty(2 * self.kinds, width).uniform_(-limit, limit, generator=generator).to(device)
        bias_K = torch.zeros(2 * self.kinds, device=device)
        optimizer = torch.optim.AdamW(
            [*own, head_KD.requires_grad_(), bias_K.requires_grad_()], lr=self.lr, weight_decay=self.weight_decay
        )
        order = torch.empty(0, dtype=torch.long)
        with evaluated(trained), torch.enable_grad():
            for step in range(self.steps):
                job.progress(step, self.steps)
                while len(order) < self.batch_size:
                    order = torch.cat((order, torch.randperm(self.strings, generator=generator)))
                string_BN, order = strings_SN[order[: self.batch_size]], order[self.batch_size :]
                closing_BN = string_BN >= self.kinds
                hidden_BN = closing_BN & (torch.rand(string_BN.shape, generator=generator) < self.hidden)
                given_BN = string_BN.masked_fill(hidden_BN, 2 * self.kinds).to(device)
                x_BND = symbols_KD[given_BN] + places_ND
                for block in trained:
                    x_BND = _called(block, x_BND)
                logits_MK = functional.layer_norm(x_BND, (width,))[hidden_BN.to(device)] @ head_KD.T + bias_K
                loss = functional.cross_entropy(logits_MK, string_BN[hidden_BN].to(device))
                warm = max(1, self.steps // 15)
                rate = self.lr * (step + 1) / warm
                if step >= warm:
                    done = (step - warm) / max(1, self.steps - warm)
                    rate = 1e-6 + (self.lr - 1e-6) * (1 + math.cos(math.pi * done)) / 2
                for group in optimizer.param_groups:
                    group["lr"] = rate
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            for parameter, value in zip(blocks.parameters(), own, strict=True):
                parameter.copy_(value)


def brackets(count: int, length: int, kinds: int, share: float, generator: Generator) -> Tensor:
    """Return strings of nested brackets, `count` x `length` (zlshinnick/procedural-pretraining, dyck.py).

    Kind k opens as k and closes as `kinds` + k. At each place a bracket is opened with probability `share`, where
    enough places are left to close it; where none is open, always. The last of an odd number of places has one that is
    never closed.
    """
    string_SN = torch.empty(count, length, dtype=torch.long)
    stack_SN, depth_S = torch.zeros(count, length + 1, dtype=torch.long), torch.zeros(count, dtype=torch.long)
    row_S = torch.arange(count)
    for place in range(length):
        left = length - place
        kind_S = torch.randint(kinds, (count,), generator=generator)
        may_open_S = (torch.rand(count, generator=generator) < share) & (depth_S < left - 1)
        opens_S = (depth_S == 0) | may_open_S
        top_S = stack_SN[row_S, (depth_S - 1).clamp(min=0)]
        string_SN[:, place] = torch.where(opens_S, kind_S, kinds + top_S)
        stack_SN[row_S, depth_S] = torch.where(opens_S, kind_S, stack_SN[row_S, depth_S])
        depth_S += torch.where(opens_S, 1, -1)
    return string_SN


def _called(block: Any, x_BND: Tensor) -> Tensor:
    given = block(x_BND)
    return given[0] if isinstance(given, tuple) else given
