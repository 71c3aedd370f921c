"""Bases that draw next to nothing: identities, Hadamard matrices, sines (`idinit`, `zero`, `sinusoidal`)."""

import math
from typing import Any

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Generator, Tensor

from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import Convolution, Place, WholeModel


@register
class IdInit(WholeModel):
    """IDInit (arXiv 2503.04626, ICLR 2025), our reading: no code of its authors was found.

    With m outputs and n inputs, a weight is `tau` where i = j modulo min(m, n), and 0 elsewhere, plus noise of
    std `loose`. The last Linear of a branch starts near 0: `eps` where i = j; and -`eps` at i = j modulo m in the
    columns from m on, or where there are none at j = i + 1 modulo n. Biases are 0.

    Not verified: `tau` for GELU, how the paper treats W_q, W_k and W_v (here three matrices), any result on a ViT. A
    convolution is the Linear from all that it sees. A learned position embedding is N(0, 0.02^2), the class token 0.
    """

    name = "idinit"

    tau: PositiveFloat = 1.0
    eps: PositiveFloat = 1e-6
    loose: NonNegativeFloat = 1e-6

    def matrix(self, weight_OI: Tensor, place: Place, generator: Generator) -> None:
        """Set an identity of `tau`, or nearly 0 at the end of a branch."""
        outputs, inputs = weight_OI.shape
        if place.role in ("proj", "mlp_out"):
            near_zero_OI = self.eps * torch.eye(outputs, inputs)
            if outputs < inputs:
                near_zero_OI[:, outputs:] = -self.eps * _repeated(outputs, inputs)[:, outputs:]
            else:
                output = torch.arange(outputs)
                near_zero_OI[output, (output + 1) % inputs] = -self.eps
            weight_OI.copy_(near_zero_OI)
        else:
            noise_OI = torch.empty(outputs, inputs).normal_(generator=generator)
            weight_OI.copy_(self.tau * _repeated(outputs, inputs) + self.loose * noise_OI)


def _repeated(rows: int, columns: int) -> Tensor:
    """1 where i = j modulo the shorter side."""
    short = min(rows, columns)
    return (torch.arange(rows)[:, None] % short == torch.arange(columns) % short).float()


@register
class Zero(WholeModel):
    """ZerO (Zhao et al., TMLR 2022, arXiv 2110.12661): identities and Hadamard transforms; biases 0.

    A weight of m outputs and n inputs is the first m rows of the identity, or where m > n the corner of a Hadamard
    matrix of 2^k rows, k = ceil(log2 m), times 2^(-k/2) as in the released code; the paper has 2^(-(k-1)/2).

    A convolution has this matrix in the middle of its kernel, and 0 elsewhere.

    What is ours, for the paper's code has no transformer: the patch embedding is treated as a Linear; the last Linear
    of a branch is 0, as the last convolution of a branch in the paper's ResNet; a depthwise filter is a one
    in its middle; the head as any weight. A learned position embedding is N(0, 0.02^2), the class token 0.
    """

    name = "zero"

    def matrix(self, weight_OI: Tensor, place: Place, generator: Generator) -> None:
        """Draws nothing."""
        outputs, inputs = weight_OI.shape
        if place.role in ("proj", "mlp_out"):
            weight_OI.zero_()
        elif outputs <= inputs:
            weight_OI.copy_(torch.eye(outputs, inputs))
        else:
            order = math.ceil(math.log2(outputs))
            hadamard = torch.ones(1, 1)  # Sylvester's
            for _ in range(order):
                hadamard = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), hadamard)
            weight_OI.copy_(2 ** (-order / 2) * hadamard[:outputs, :inputs])

    def convolution(self, module: Convolution, generator: Generator) -> None:
        """As a Linear where patches do not overlap, else by the middle of the kernel."""
        if module.stride == module.kernel_size:
            super().convolution(module, generator)
            return
        module.weight.zero_()
        index: Any = (..., *(size // 2 for size in module.kernel_size))
        middle = module.weight[index]
        if module.groups > 1 and middle.shape[1] == 1:
            middle.fill_(1.0)
        else:
            self.matrix(middle, Place(), generator)


@register
class Sinusoidal(WholeModel):
    """Sinusoidal initialisation (arXiv 2505.12909, NeurIPS 2025): W_ij = a sin(i (2 pi j / n + 2 pi / m)), biases 0.

    i = 1 to m counts outputs, j = 0 to n - 1 inputs, and a makes the variance of all entries 2 / (m + n). The
    patch embedding and the head are set so, too. The paper leaves embeddings alone: a learned position embedding is
    N(0, 0.02^2) here, the class token 0.

    Traps. Of a square matrix row n - i is minus row i, so that its rank is n / 2 - 1, and W_q = W_k = W_v.
    """

    name = "sinusoidal"

    def matrix(self, weight_OI: Tensor, place: Place, generator: Generator) -> None:
        """Draws nothing."""
        outputs, inputs = weight_OI.shape
        neuron_O1 = torch.arange(1, outputs + 1, dtype=torch.float64)[:, None]
        place_I = torch.arange(inputs, dtype=torch.float64) * (2 * math.pi / inputs) + 2 * math.pi / outputs
        waves_OI = torch.sin(neuron_O1 * place_I)
        weight_OI.copy_(waves_OI * torch.sqrt(2 / (inputs + outputs) / waves_OI.var()))
