"""Top-1 accuracy of the images of each class, where there are few classes."""

from vitinit.benchmark.metrics.registry import Metric, Tensor

MOST_CLASSES = 20


class ClassAccuracy(Metric):
    """Accuracy in percent of the images of each class: `class_accuracy_0`, `class_accuracy_1` and so on."""

    name = "class_accuracy"
    label = "accuracy of class"
    at_the_end = True

    def fits(self, classes: int) -> bool:
        """Return True for few classes: a record of a thousand would hold little else."""
        return classes <= MOST_CLASSES

    def sums(self, logits_NK: Tensor, labels_N: Tensor) -> Tensor:
        """Count the images of each class, and the correct ones."""
        import torch

        classes, counted_N = logits_NK.shape[1], labels_N[labels_N >= 0]
        correct_N = labels_N[logits_NK.argmax(-1) == labels_N]
        return torch.cat([labels.bincount(minlength=classes) for labels in (counted_N, correct_N)]).double()

    def values(self, sums: Tensor) -> dict[str, float]:
        """Return the accuracy of each class that has images."""
        counts, correct = sums.view(2, -1).tolist()
        return {
            f"{self.name}_{k}": 100 * right / count
            for k, (count, right) in enumerate(zip(counts, correct, strict=True))
            if count
        }
