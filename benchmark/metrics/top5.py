"""Top-5 accuracy."""

from vitinit.benchmark.metrics.registry import Tensor
from vitinit.benchmark.metrics.top1 import Top1


class Top5(Top1):
    """Share, in percent, of images whose class is among the five with the highest logits."""

    name = "top5"
    label = "top-5"

    def fits(self, classes: int) -> bool:
        """Return True for more than five classes."""
        return classes > 5

    def sums(self, logits_NK: Tensor, labels_N: Tensor) -> Tensor:
        """Count the correct ones, and all."""
        import torch

        correct = (logits_NK.float().topk(5).indices == labels_N[:, None]).sum()
        return torch.stack([correct, (labels_N >= 0).sum()]).double()
