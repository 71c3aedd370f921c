"""Mean intersection over union of masks, from the pixels of all held-out images."""

from vitinit.benchmark.metrics.registry import Metric, Tensor


class MeanIoU(Metric):
    """Mean over classes of intersection over union in percent; a class that is neither there nor predicted has none."""

    name = "miou"
    label = "mean IoU"
    of = ("masks",)

    def sums(self, logits_NK: Tensor, labels_N: Tensor) -> Tensor:
        """Count pixels by class and by predicted class."""
        classes, counted_N = logits_NK.shape[1], labels_N >= 0
        pairs = labels_N[counted_N] * classes + logits_NK.argmax(-1)[counted_N]
        return pairs.bincount(minlength=classes**2).double()

    def values(self, sums: Tensor) -> dict[str, float]:
        """Return the mean over classes."""
        classes = round(len(sums) ** 0.5)
        confusion_KK = sums.view(classes, classes)
        both_K = confusion_KK.diagonal()
        either_K = confusion_KK.sum(0) + confusion_KK.sum(1) - both_K
        return {self.name: 100 * float((both_K[either_K > 0] / either_K[either_K > 0]).mean())}
