"""Models that predict a class for every pixel: the classifier of every token, enlarged."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from vitinit.benchmark.grids.parts import resolve_model
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.family import ModelSpec
from vitinit.benchmark.models.registry import families
from vitinit.initializers import registry

CLASSES, SIDE, PATCH = 5, 32, 4
IMAGES_BCHW = torch.randn(3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
DENSE = [name for name, family in families().items() if family.dense]
VIT_FIELDS: list[dict[str, Any]] = [{}, {"pool": "token", "position": "learned"}, {"layer_scale": 0.1}]


def smallest(arch: str, **fields: Any) -> ModelSpec:
    name = next(iter(families()[arch].presets))
    return resolve_model({"preset": name, "image_size": SIDE, "patch_size": PATCH, **fields})


def initialised(spec: ModelSpec, dense: bool) -> Any:
    model = build_model(spec, CLASSES, dense)
    registry.build("trunc_normal", {"std": 0.2}).apply(model, torch.Generator().manual_seed(0), lambda *_: None)
    return model.eval()


@pytest.mark.parametrize("arch", DENSE)
def test_every_dense_family_predicts_every_pixel_with_the_parameters_that_it_has(arch: str) -> None:
    spec = smallest(arch)
    model, classifier = initialised(spec, dense=True), initialised(spec, dense=False)
    assert model.state_dict().keys() == classifier.state_dict().keys()
    for (name, ours), (same, theirs) in zip(model.named_parameters(), classifier.named_parameters(), strict=True):
        assert (name, torch.equal(ours, theirs)) == (same, True), "a base sets the same weights"
    output = model.train()(IMAGES_BCHW)
    assert output.shape == (3, SIDE, SIDE, CLASSES)
    output.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters()), "else processes wait for its gradient"


@pytest.mark.parametrize("fields", VIT_FIELDS, ids=["mean", "class-token", "layer-scale"])
def test_the_head_is_a_product_for_each_token_then_bilinear(fields: dict[str, Any]) -> None:
    model, last = initialised(smallest("vit", **fields), dense=True), []
    model.blocks[-1].register_forward_hook(lambda _, __, output: last.append(output))
    with torch.no_grad():
        found = model(IMAGES_BCHW)
        norm = model.norm if fields.get("pool") == "token" else model.fc_norm
        normed_BND = F.layer_norm(last[0], last[0].shape[-1:], norm.weight, norm.bias, norm.eps)
        logits_BNK = normed_BND[:, -((SIDE // PATCH) ** 2) :] @ model.head.weight.T + model.head.bias
        grid = logits_BNK.mT.unflatten(2, (SIDE // PATCH, SIDE // PATCH))
        expected = F.interpolate(grid, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    torch.testing.assert_close(found, expected.permute(0, 2, 3, 1), rtol=1e-5, atol=1e-5)
