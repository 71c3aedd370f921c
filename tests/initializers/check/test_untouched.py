"""Untouched models get no warning but those that are true of them, which docs/check.md explains."""

from __future__ import annotations

import pytest
import torch
import zoo

import vitinit

TRUE_OF = {
    "timm ViT no positions": {"places-unseen"},
    "timm Swin V2": {"attention-too-sharp"},  # logits are ten cosines, here of heads of 12 features
    "timm Swin V2 CR": {"attention-too-sharp"},
    "torchvision Swin V2": {"attention-too-sharp"},
    "Hugging Face Swin V2": {"attention-too-sharp"},
    "torchvision ViT": {"loss-above-chance"},  # whose head the tests set to std 1
    "vit-pytorch ViT": {"position-too-large"},
    "nn.TransformerEncoder": {"copies"},
}


@pytest.mark.parametrize("name", zoo.ZOO)
def test_no_warning_that_is_not_true(name: str) -> None:
    model = zoo.build(name).train()
    given = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    report = vitinit.check(model, given, torch.arange(8) % 10)
    found = {one.key for one in report.findings}
    assert found <= TRUE_OF.get(name, set()), report.findings
    assert found or name not in ("timm ViT no positions", "vit-pytorch ViT", "nn.TransformerEncoder")


@pytest.mark.long
def test_small_models_of_timm_made_by_name() -> None:
    """Those that timm tests itself with: hybrids, convolutions, relative positions, batch norms."""
    timm = pytest.importorskip("timm")
    for name in ("test_vit2", "test_vit3", "test_convnext", "test_efficientnet", "test_mambaout"):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = timm.create_model(name, num_classes=10)
        assert vitinit.check(model).sound, (name, vitinit.check(model).findings)
