"""Metrics by name: against scikit-learn and by hand; what all of them promise."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, jaccard_score, log_loss, recall_score, top_k_accuracy_score

from vitinit.benchmark.metrics import registry

CLASSES = 8
OURS = {"loss", "top1", "top5", "calibration_error", "class_accuracy", "miou"}


def images(count=300, seed=0):
    """Logits that are often right."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES - 1, (count,), generator=generator)  # the last class has no image
    logits = 2 * torch.randn(count, CLASSES, generator=generator)
    logits[torch.arange(count), labels] += 2
    return logits, labels


def by_hand(logits, labels):
    p, truth, guess = logits.double().softmax(-1).numpy(), labels.numpy(), logits.argmax(-1).numpy()
    every, bins = list(range(CLASSES)), np.ceil(15 * p.max(-1))
    gaps = sum(abs((p.max(-1) - (guess == truth))[bins == number].sum()) for number in range(1, 16))
    recalls = recall_score(truth, guess, labels=every, average=None, zero_division=np.nan)
    return {
        "loss": log_loss(truth, p, labels=every),
        "top1": 100 * accuracy_score(truth, guess),
        "top5": 100 * top_k_accuracy_score(truth, p, k=5, labels=every),
        "calibration_error": 100 * gaps / len(truth),
        **{f"class_accuracy_{k}": 100 * recall for k, recall in enumerate(recalls) if not np.isnan(recall)},
        "miou": 100 * jaccard_score(truth, guess, labels=every, average="macro"),
    }


@pytest.mark.parametrize("name", registry.REGISTRY.by_name())
def test_it_is_the_one_of_scikit_learn_or_by_hand_over_batches_and_without_what_is_not_to_count(name):
    metric, (logits, labels) = registry.get(name), images()
    assert metric.fits(CLASSES)
    assert not metric.sums(logits[:0], labels[:0]).any(), "a process without images adds nothing"
    logits_more, labels_more = torch.cat([logits, images(50, 1)[0]]), torch.cat([labels, torch.full((50,), -100)])
    order = torch.randperm(350, generator=torch.Generator().manual_seed(2))
    batches = zip(logits_more[order].split(64), labels_more[order].split(64), strict=True)
    values = metric.values(sum(metric.sums(*batch) for batch in batches))
    assert values == pytest.approx(metric.values(metric.sums(logits, labels)), rel=1e-6), "sums of batches add up"
    expected = {key: value for key, value in by_hand(logits, labels).items() if registry.get(key).name == name}
    if expected:  # a metric of a stranger has a test of its own
        assert values == pytest.approx(expected, rel=1e-6)
    for key, value in values.items():
        assert registry.get(key).name == name
        assert registry.metric_label(key).startswith(metric.label)
        assert np.isfinite(value)


def test_labels_have_some_masks_others_and_few_classes_more():
    def names(classes, dense=False, last=True):
        return {each.name for each in registry.fitting(classes, dense, last)} & OURS

    assert names(5) == {"loss", "top1", "calibration_error", "class_accuracy"}
    assert names(10, last=False) == {"loss", "top1", "top5", "calibration_error"}
    assert names(20) - names(21) == {"class_accuracy"}
    assert names(100) == {"loss", "top1", "top5", "calibration_error"}
    assert names(10, dense=True) == {"loss", "miou"}
