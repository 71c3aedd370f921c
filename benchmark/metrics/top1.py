"""Top-1 accuracy."""

from vitinit.benchmark.metrics.registry import Metric, Tensor


class Top1(Metric):
    """Share, in percent, of images whose class has the highest logit."""

    name = "top1"
    label = "top-1"

    def sums(self, logits_NK: Tensor, labels_N: Tensor) -> Tensor:
        """Count the correct ones, and all."""
        import torch

        return torch.stack([(logits_NK.argmax(-1) == labels_N).sum(), (labels_N >= 0).sum()]).double()
