"""Expected calibration error: the gap between confidence and accuracy (Guo et al., arXiv 1706.04599)."""

from vitinit.benchmark.metrics.registry import Metric, Tensor

BINS = 15


class CalibrationError(Metric):
    """Expected calibration error in percent: 15 equal bins of the highest probability, weighted by their images."""

    name = "calibration_error"
    label = "calibration error"
    lower_is_better = True

    def sums(self, logits_NK: Tensor, labels_N: Tensor) -> Tensor:
        """Return each bin's images, the sum of their confidence, and the correct ones."""
        import torch

        confidence_N, guess_N = logits_NK.double().softmax(-1).max(-1)
        bins_N = (confidence_N * BINS).ceil().long().clamp(1, BINS) - 1
        counted_N = (labels_N >= 0).double()
        each_3N = torch.stack([counted_N, counted_N * confidence_N, (guess_N == labels_N).double()])
        # a matrix product, as scatter_add has no fixed order on a GPU
        return (each_3N @ torch.nn.functional.one_hot(bins_N, BINS).double()).flatten()

    def values(self, sums: Tensor) -> dict[str, float]:
        """Return the gap, weighted by images."""
        count_B, confidence_B, correct_B = sums.view(3, BINS)
        return {self.name: 100 * float((confidence_B - correct_B).abs().sum() / count_B.sum())}
