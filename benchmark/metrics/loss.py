"""Mean cross-entropy, without label smoothing."""

from vitinit.benchmark.metrics.registry import Metric, Tensor


class Loss(Metric):
    """Mean cross-entropy, in nats."""

    name = "loss"
    label = "loss"
    of = ("labels", "masks")
    percent = False
    lower_is_better = True

    def sums(self, logits_NK: Tensor, labels_N: Tensor) -> Tensor:
        """Return the sum of losses, and how many."""
        import torch
        from torch.nn.functional import cross_entropy

        loss = cross_entropy(logits_NK.float(), labels_N, reduction="sum").double()
        return torch.stack([loss, (labels_N >= 0).sum()])

    def values(self, sums: Tensor) -> dict[str, float]:
        """Return the mean."""
        loss, count = sums.tolist()
        return {self.name: loss / count}
