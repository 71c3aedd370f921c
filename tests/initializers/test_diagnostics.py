"""The start of a run in its record: attention and fidelity by formulas."""

import numpy as np
import pytest
import torch
from small_models import VIT_TOKEN, images, loop_targets, model, streams
from torch.nn import functional as F

from vitinit.initializers import registry
from vitinit.initializers.apply import initialize_run, offset_maps
from vitinit.initializers.diagnostics import measured
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.measure import Softmaxes
from vitinit.initializers.report import InitReport


def test_attention_that_the_model_never_calls_is_named():
    m = model(VIT_TOKEN)
    m.blocks[1].forward = lambda x: x
    with pytest.raises(VitinitError, match=r"attention 'blocks.1.attn' is not called in a forward pass of"):
        measured(m, images(3))


def test_fused_attention_is_shown_with_its_causal_mask_and_with_keys_that_heads_share():
    query, maps = torch.randn(1, 4, 5, 8), []
    given = {"key": query[:, :2], "value": torch.eye(5).expand(1, 2, 5, 5), "is_causal": True, "enable_gqa": True}
    with Softmaxes(lambda _, attention, dim: maps.append(attention)):
        maps.append(F.scaled_dot_product_attention(query, **given))
    torch.testing.assert_close(*maps)


@pytest.mark.parametrize(("rows", "columns", "r"), [(4, 3, 2), (3, 4, 2), (6, 5, 3)])
def test_offset_map_is_a_mean_over_the_queries_whose_token_is_inside(rows, columns, r):
    tokens = rows * columns
    attention = torch.rand(2, tokens, tokens, generator=torch.Generator().manual_seed(0)).softmax(-1)
    maps = np.array(offset_maps(attention, (rows, columns), 3))
    assert maps.shape == (2, 2 * r + 1, 2 * r + 1)
    for (h, i, j), share in np.ndenumerate(maps):
        m, n = i - r, j - r
        values = [
            float(attention[h, row * columns + col, (row + m) * columns + col + n])
            for row in range(rows)
            for col in range(columns)
            if 0 <= row + m < rows and 0 <= col + n < columns
        ]
        assert abs(share - np.mean(values)) < 2e-6


@torch.no_grad()
def test_the_report_of_impulse_equals_numbers_from_the_weights():
    m, given = model(), images(3)
    base, method = registry.build("kaiming_uniform", {}), registry.build("impulse", {"offsets": "fixed"})
    report, returned = initialize_run(m, base, method, streams(0), given)
    targets = torch.tensor(loop_targets(8, 8, [(0, 0), (-1, 0), (0, 1), (0, -1)]))
    assert torch.equal(returned, targets.bool().expand(2, -1, -1, -1))
    has, qkv, block = targets.any(-1), m.blocks[0].attn.qkv, m.blocks[0]
    weight_3HdD, bias_3H1d = qkv.weight.double().view(3, 4, 12, 48), qkv.bias.double().view(3, 4, 1, 12)

    def attention(x_BND, biased):
        query, key, _ = x_BND[:, None, None].transpose(0, 1) @ weight_3HdD.mT[:, None] + biased * bias_3H1d[:, None]
        return (query @ key.mT / 12**0.5).softmax(-1)

    pseudo = attention(F.layer_norm(m.pos_embed.double(), (48,)), False)
    real = attention(block.norm1(m._pos_embed(m.patch_embed(given))).double(), True)
    for fidelity, attention_BHNN in ((report.pseudo_input, pseudo), (report.real_images, real)):
        assert fidelity.mass == pytest.approx(float((attention_BHNN * targets).sum(-1)[:, has].mean()), rel=1e-3)
    assert report.images == 3
    np.testing.assert_allclose(report.offset_maps, offset_maps(real.mean(0), (8, 8), 3), atol=2e-5)
    assert report.norms[0].query == pytest.approx(weight_3HdD[0].norm(dim=(1, 2)).tolist())
    assert report.seconds > 0
    assert InitReport.model_validate_json(report.model_dump_json()) == report
