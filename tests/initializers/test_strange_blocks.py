"""Blocks that are not what a method is made for, and attention that no adapter knows."""

from __future__ import annotations

import importlib
import types
from typing import Any

import pytest
import timm
import torch
import zoo
from small_models import differing, images, state
from torch import nn

import vitinit

TINY: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4, "num_classes": 3}


def tiny(**more: Any) -> Any:
    return timm.models.VisionTransformer(**TINY, **more)


class LowRank(nn.Module):
    """fc2 with an adapter."""

    def __init__(self, inner: nn.Linear, name: str) -> None:
        super().__init__()
        self.inner, self.name = inner, name
        self.add_module(f"{name}A", nn.Linear(inner.in_features, 4, bias=False))
        self.add_module(f"{name}B", nn.Linear(4, inner.out_features, bias=False))

    def forward(self, x: Any) -> Any:
        return self.inner(x) + getattr(self, f"{self.name}B")(getattr(self, f"{self.name}A")(x))


class Gated(nn.Module):
    """An MLP with a gate behind it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.gate = inner, nn.Linear(48, 48)

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.gate(x).sigmoid()


def changed(model: Any, how: str) -> Any:
    for block in model.blocks:
        if how == "adapter":
            block.mlp.fc2 = LowRank(block.mlp.fc2, "down_")
        elif how == "experts":
            block.mlp = nn.ModuleList([block.mlp, timm.layers.Mlp(48)])
        else:
            block.mlp = Gated(block.mlp)
    return model


@pytest.mark.parametrize("method", ["zero_branch", "depth_scaled"])
@pytest.mark.parametrize("how", ["adapter", "experts", "gate"])
def test_a_branch_that_does_not_end_in_one_linear_is_refused(how: str, method: str) -> None:
    model = changed(tiny(), how)
    before = state(model)
    with pytest.raises(vitinit.VitinitError, match="one Linear that ends it"):
        vitinit.initialize(model, method)
    assert differing(before, state(model)) == set()


def test_low_rank_adapters_are_not_filled_by_bases() -> None:
    model = tiny()
    model.blocks[0].mlp.fc2 = LowRank(model.blocks[0].mlp.fc2, "lora_")
    with pytest.raises(vitinit.VitinitError, match="low-rank adapter"):
        vitinit.initialize(model, base="orthogonal")


def test_blocks_are_the_identity_or_refused() -> None:
    post = nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 96, batch_first=True), 2)
    with pytest.raises(vitinit.VitinitError, match="changes tokens"):
        vitinit.initialize(post, "zero_branch", base="trunc_normal")
    vitinit.initialize(tiny(), "zero_branch", base="trunc_normal")


def test_norms_that_scale_branches_keep_what_the_library_gives_them() -> None:
    block = timm.models.vision_transformer.ResPostBlock
    model = tiny(block_fn=block, init_values=1e-5)
    vitinit.initialize(model, base="trunc_normal")
    assert torch.equal(model.blocks[0].norm1.weight, torch.full((48,), 1e-5))
    assert torch.equal(model.norm.weight, torch.ones(48))
    vitinit.initialize(model, layer_scale=0.1)
    assert torch.equal(model.blocks[1].norm2.weight, torch.full((48,), 0.1))


class Nano(nn.Module):
    """A hand-written block."""

    def __init__(self, fused: bool = True) -> None:
        super().__init__()
        self.n_head = 4
        self.c_attn, self.c_proj = nn.Linear(48, 144), nn.Linear(48, 48)

    def forward(self, x: Any) -> Any:
        return self.c_proj(self.c_attn(x)[..., :48])


def test_each_of_w_q_w_k_and_w_v_of_unknown_attention_is_orthogonal() -> None:
    nest = importlib.import_module("timm.models.nest").Attention(48, num_heads=4)
    for attention, linear in ((Nano(), "c_attn"), (nest, "qkv")):
        vitinit.initialize(nn.Sequential(attention), base="orthogonal")
        for weight in getattr(attention, linear).weight.unflatten(0, (3, 48)):
            torch.testing.assert_close(weight @ weight.T, torch.eye(48), atol=1e-5, rtol=0)


def test_separate_queries_keys_and_values_of_unknown_attention_are_as_one_for_torchvision() -> None:
    attention = nn.Module()
    for name in ("q", "kv"):
        attention.add_module(name, nn.Linear(48, 48 * len(name)))
    vitinit.initialize(nn.Sequential(attention), base="torchvision_vit")
    bound = (6 / (48 + 144)) ** 0.5
    assert bound * 0.97 < float(attention.kv.weight.abs().max()) <= bound


def test_a_position_embedding_like_a_picture_has_its_width_in_front() -> None:
    model = timm.create_model("pit_ti_224")
    vitinit.initialize(model, base="jax_vit")
    assert float(model.pos_embed.std()) == pytest.approx(0.125, rel=0.05)


def test_one_unknown_block_among_known_ones_is_not_left_out() -> None:
    model = tiny()
    model.blocks[1].attn = Nano()
    with pytest.raises(vitinit.VitinitError, match=r"'blocks.1.attn' is of a kind that no adapter knows"):
        vitinit.initialize(model, "mimetic")


def test_depth_is_not_counted_across_towers() -> None:
    both = nn.ModuleDict({"model": tiny(), "average": tiny()})
    with pytest.raises(vitinit.VitinitError, match="give one of them"):
        vitinit.initialize(both, "depth_scaled")
    before = both["model"].blocks[1].mlp.fc2.weight.clone()
    vitinit.initialize(both["model"], "depth_scaled")
    torch.testing.assert_close(both["model"].blocks[1].mlp.fc2.weight, before / 2)


def test_attention_of_a_learned_query_keeps_its_base() -> None:
    pool = nn.Module()
    pool.query = nn.Parameter(torch.zeros(4, 48))
    pool.attn = nn.MultiheadAttention(48, 4)
    model = nn.ModuleDict({"vit": tiny(), "pool": pool})
    before = state(pool)
    report = vitinit.initialize(model, "mimetic")
    assert differing(before, state(pool)) == set()
    assert report.beside == ("pool.attn",)


@pytest.mark.parametrize("method", ["zero_query", "conditioned", "dct", "mimetic"])
def test_normalised_queries_and_keys_are_refused(method: str) -> None:
    with pytest.raises(vitinit.VitinitError, match="normalises queries and keys"):
        vitinit.initialize(tiny(qk_norm=True), method)
    if method == "dct":
        vitinit.initialize(tiny(qk_norm=True), method, matrix="value")


def test_lsuv_gives_the_same_function_in_two_libraries() -> None:
    pytest.importorskip("transformers")
    answers = []
    for name in ("timm ViT", "Hugging Face ViT"):
        model = zoo.build(name)
        vitinit.initialize(model, "lsuv", base="trunc_normal", images=images(8))
        with torch.no_grad():
            given = model(images(2, seed=3))
        answers.append(given if isinstance(given, torch.Tensor) else given.logits)
    torch.testing.assert_close(answers[0], answers[1], rtol=0, atol=5e-3)  # Hugging Face's norms have another eps


def test_a_method_may_be_a_mapping_as_a_base_may() -> None:
    report = vitinit.initialize(tiny(), {"name": "lsuv", "images": 5}, images=images(8))
    assert report.method is not None
    assert report.method["images"] == 5


def test_what_a_refused_method_has_left_in_attributes_is_put_back() -> None:
    model = zoo.build("timm ConViT")
    gpsa = model.blocks[0].attn
    kept, value = gpsa.rel_indices, gpsa.rel_indices.clone()
    model.spare = nn.Linear(3, 3)
    with pytest.raises(vitinit.VitinitError, match="spare"):
        vitinit.initialize(model, "lsuv", base="trunc_normal", images=images(2))
    assert gpsa.rel_indices is kept
    assert torch.equal(gpsa.rel_indices, value)


def test_a_pooling_head_starts_as_in_jax() -> None:
    model = zoo.build("timm ViT map pool")
    vitinit.initialize(model, base="jax_vit")
    bound = (6 / 96) ** 0.5
    assert bound * 0.97 < float(model.attn_pool.kv.weight.abs().max()) <= bound
    assert float(model.attn_pool.latent.abs().max()) <= (6 / 49) ** 0.5


def test_a_head_called_fc_is_a_head() -> None:
    model = nn.Module()
    model.vit, model.fc = timm.models.VisionTransformer(**{**TINY, "num_classes": 0}), nn.Linear(48, 3)
    vitinit.initialize(model, base="jax_vit")
    assert not model.fc.weight.any()


def test_representation_size_starts_as_in_torchvision() -> None:
    from torchvision.models.vision_transformer import VisionTransformer

    model = VisionTransformer(32, 8, 1, 4, 192, 48, num_classes=3, representation_size=400)
    vitinit.initialize(model, base="torchvision_vit")
    assert float(model.heads.pre_logits.weight.std()) == pytest.approx(192**-0.5, rel=0.02)


def test_eva_with_mixed_rotations_takes_bases_and_methods() -> None:
    small = {**TINY, "mlp_ratio": 2.0, "use_rot_pos_emb": True, "rope_type": "mixed"}
    model = timm.models.Eva(**small, use_abs_pos_emb=False)
    freqs = model.rope.freqs.clone()
    vitinit.initialize(model, "mimetic", base="trunc_normal")
    assert torch.equal(model.rope.freqs, freqs)


def test_a_forward_that_is_set_on_an_instance_is_noticed() -> None:
    model = tiny()
    attn = model.blocks[1].attn
    attn.forward = types.MethodType(lambda self, x, **more: x, attn)
    with pytest.raises(vitinit.VitinitError, match="set on the instance"):
        vitinit.initialize(model, "mimetic")
    attn.same_attention = True
    vitinit.initialize(model, "mimetic")
