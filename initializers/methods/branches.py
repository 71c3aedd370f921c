"""Methods that set the ends of the branches of a block: `zero_branch`, `depth_scaled`, `scaled_random`."""

from typing import Literal

from pydantic import PositiveFloat
from torch import Generator, nn

from vitinit.initializers.attention import attention_layers
from vitinit.initializers.registry import Initializer, Job, register
from vitinit.initializers.whole_model import draw_uniform_


@register
class ZeroBranch(Initializer):
    """W_proj and the last Linear of each MLP are 0, biases too, so that both branches of a block add nothing at first.
    The idea of ReZero (arXiv 2003.04887) and SkipInit (arXiv 2002.10444), without their extra scalar.

    At the first step these two matrices alone have a gradient. The control for every claim about signals in deep
    networks.

    Traps. In a post-norm block a norm follows the sum, so that the block is no identity. Where a norm ends the branch
    (res-post-norm, Swin V2), it multiplies the first gradients by 1 / sqrt(eps), for the variance there is 0.
    """

    name = "zero_branch"
    sets = ("proj", "proj_bias", "mlp_out")
    deterministic = True

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Clear the last Linear of both branches of every block."""
        for layer in attention_layers(model):
            last = list(layer.mlp.values())[-1]
            for tensor in (layer.proj_DD, layer.bias(layer.paths.proj), last.weight, last.bias):
                if tensor is not None:
                    tensor.zero_()


@register
class DepthScaled(Initializer):
    """W_proj and the last Linear of each MLP are divided, so that the residual stream keeps its size with depth.

    By sqrt(2 l) in block l = 1, 2, ... (BEiT, EVA and timm's `fix_init`), or by sqrt(2 L) in each of L blocks (as GPT-2
    does, from general knowledge). Biases keep their base, like all else.
    """

    name = "depth_scaled"
    sets = ("proj", "mlp_out")
    one_stream = True
    deterministic = True

    rule: Literal["fix_init", "gpt2"] = "fix_init"

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Divide the last Linear of both branches of every block."""
        layers = attention_layers(model)
        for block, layer in enumerate(layers, 1):
            branches = 2 * (block if self.rule == "fix_init" else len(layers))
            for weight in (layer.proj_DD, list(layer.mlp.values())[-1].weight):
                weight /= branches**0.5


@register
class ScaledRandom(Initializer):
    """W_q, W_k, W_v, W_proj and the first Linear of each MLP are uniform with standard deviation `scale` / sqrt(D).
    The weight of the last Linear of each MLP is 0 (KellerJordan/modded-nanogpt, commit 1ee5d105).

    There it replaced a start of W_v and W_proj as in mimetic. Biases, which that model does not have, keep their base.

    Traps. The limit of the uniform distribution is sqrt(3) times its standard deviation. D is the width of the
    tokens, for W_proj, too, whatever it reads.
    """

    name = "scaled_random"
    sets = ("query", "key", "value", "proj", "mlp_in", "mlp_out")

    scale: PositiveFloat = 0.5
    """Standard deviation in units of 1 / sqrt(D)."""

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Draw the weights of every block, and clear the last Linear of its MLP."""
        for layer in attention_layers(model):
            limit = self.scale * (3 / layer.query_HdD.shape[-1]) ** 0.5
            first, *_, last = layer.mlp.values()
            for weight in (layer.query_HdD, layer.key_HdD, layer.value_DD, layer.proj_DD, first.weight):
                draw_uniform_(weight, limit, generator)
            last.weight.zero_()
