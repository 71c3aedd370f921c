"""Training through torch.compile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from vitinit.initializers.errors import VitinitError, plain


@contextmanager
def compiled(model: nn.Module, wanted: bool) -> Iterator[nn.Module]:
    """Yield the model for forward passes: compiled if wanted, with the model's own parameters; else the model itself.

    Raises:
        VitinitError: it cannot be compiled as a whole.
    """
    if not wanted:
        yield model
        return
    from torch._dynamo.exc import TorchDynamoException

    torch.compiler.reset()  # dynamo compiles eight shapes in a process, and nothing after them
    try:
        # fallback_random: dropout draws what it draws without torch.compile, from the seeds of `train`
        yield torch.compile(model, dynamic=False, fullgraph=True, options={"fallback_random": True})  # type: ignore[misc]
    except TorchDynamoException as error:
        cause = plain(str(error), 300)
        raise VitinitError(
            f"torch.compile cannot compile {type(model).__name__}: {cause}; without --compile it trains"
        ) from error
