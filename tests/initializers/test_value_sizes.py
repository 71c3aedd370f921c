"""`vitinit.initialize` on attention whose values have more features than its keys, or fewer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from small_models import state
from torch import Tensor, nn

import vitinit

D, HEADS = 48, 4
SIZES = [(24, 52), (48, 24)]
"""Rows of W_q and W_k, and those of W_v."""


class Own(nn.Module):
    """Somebody's attention: W_v of `value` rows, W_proj of `taken` columns, or none."""

    def __init__(self, key: int = D, value: int = D, taken: int | None = -1) -> None:
        super().__init__()
        self.heads = HEADS
        self.to_q, self.to_k = nn.Linear(D, key, bias=False), nn.Linear(D, key, bias=False)
        self.to_v = nn.Linear(D, value)
        self.out = nn.Identity() if taken is None else nn.Linear(value if taken < 0 else taken, D)


@pytest.fixture(autouse=True)
def adapter() -> Iterator[None]:
    """Of `Own`."""
    query, key, value, proj = (vitinit.linear(name) for name in ("to_q", "to_k", "to_v", "out"))
    attention = vitinit.Attention((Own,), "heads", query=query, key=key, value=value, proj=proj)
    vitinit.register(vitinit.Adapter("value sizes", attention=(attention,)))
    yield
    vitinit.unregister("value sizes")


def made(key: int, value: int, method: str | None = None, /, **asked: Any) -> Any:
    """The attention, after a base and, where it is asked for, a method."""
    m = Own(key, value)
    vitinit.initialize(nn.Sequential(m), method, **{"base": "trunc_normal", **asked})
    return m


def query_key(m: Own) -> Tensor:
    """W_q^T W_k of each head, H x D x D."""
    query_HdD, key_HdD = (part.weight.detach().unflatten(0, (HEADS, -1)) for part in (m.to_q, m.to_k))
    return query_HdD.mT @ key_HdD


def value_path(m: Any) -> Tensor:
    """Sum over heads of W_v,h^T W_proj,h^T: D x D."""
    value_HdD = m.to_v.weight.detach().unflatten(0, (HEADS, -1))
    proj_HDd = m.out.weight.detach().unflatten(1, (HEADS, -1)).transpose(0, 1)
    return (value_HdD.mT @ proj_HDd.mT).sum(0)


@pytest.mark.parametrize(("key", "value"), SIZES)
def test_mimetic_has_the_products_that_it_has_where_they_are_as_wide(key: int, value: int) -> None:
    m, as_wide, square = made(key, value, "mimetic"), made(key, key, "mimetic"), made(D, D, "mimetic")
    torch.testing.assert_close(query_key(m), query_key(as_wide))
    goal_DD = value_path(square)
    if value < D:
        u, s, vh = torch.linalg.svd(goal_DD)
        goal_DD = (u * s)[:, :value] @ vh[:value]
    torch.testing.assert_close(value_path(m), goal_DD, atol=1e-5, rtol=1e-4)
    assert -0.45 < float(value_path(square).diagonal().mean()) < -0.3


@pytest.mark.parametrize(("key", "value"), SIZES)
def test_a_placebo_of_mimetic_has_its_spectra(key: int, value: int) -> None:
    m, placebo = made(key, value, "mimetic"), made(key, value, "placebo", of="mimetic")
    for products in (query_key, value_path):
        ours, theirs = products(placebo), products(m)
        assert not torch.allclose(ours, theirs, atol=0.01)
        torch.testing.assert_close(torch.linalg.svdvals(ours), torch.linalg.svdvals(theirs), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("key", "value", "base", "gain"), [(48, 52, "orthogonal", 0.0), (24, 48, "spectral", 0.5)])
def test_a_base_sets_each_matrix_for_itself(key: int, value: int, base: str, gain: float) -> None:
    """All singular values are (outputs / inputs)^gain."""
    m = made(key, value, base=base)
    for part in (m.to_q, m.to_k, m.to_v, m.out):
        rows, columns = part.weight.shape
        values = torch.linalg.svdvals(part.weight.detach())
        torch.testing.assert_close(values, torch.full_like(values, (rows / columns) ** gain))


def test_heads_of_a_base_are_those_of_each_matrix() -> None:
    m = made(24, 96, base={"name": "orthogonal", "qkv": "per_head"})
    for part in (m.to_q, m.to_k, m.to_v):
        values = torch.linalg.svdvals(part.weight.detach().unflatten(0, (HEADS, -1)))
        torch.testing.assert_close(values, torch.ones_like(values))


def test_a_base_that_takes_them_as_one_matrix_has_all_of_their_rows() -> None:
    m = made(24, 96, base={"name": "orthogonal", "qkv": "fused"})
    joined = torch.cat([part.weight.detach() for part in (m.to_q, m.to_k, m.to_v)])
    torch.testing.assert_close(joined.T @ joined, torch.eye(D))


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("conditioned", {}),
        ("conditioned", {"value": "slices"}),
        ("dct", {}),
        ("dct", {"matrix": "query"}),
        ("placebo", {"of": "conditioned"}),
    ],
)
def test_methods_that_are_not_made_for_it_say_so(method: str, asked: dict[str, Any]) -> None:
    key, value = 24, 48
    m = nn.Sequential(Own(key, value))
    before = state(m)
    why = f"is made for values as wide as keys, and in '0' W_v has {value} rows and W_k {key}"
    with pytest.raises(vitinit.VitinitError, match=why):
        vitinit.initialize(m, method, base="trunc_normal", **asked)
    assert all(torch.equal(new, before[name]) for name, new in state(m).items())


def test_they_fit_where_they_do_not_set_both() -> None:
    m = made(24, 96, "conditioned", value="keep")
    for part in (m.to_q, m.to_k):
        values = torch.linalg.svdvals(part.weight.detach().unflatten(0, (HEADS, -1)))
        torch.testing.assert_close(values, torch.ones_like(values))
    value_DD = made(24, D, "dct", matrix="value").to_v.weight.detach()
    torch.testing.assert_close(value_DD @ value_DD.T, torch.eye(D))
    assert float(value_DD[0].std()) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("value", "taken"), [(24, 48), (96, 48), (12, None)])
def test_values_that_w_proj_does_not_take_as_they_are_are_refused(value: int, taken: int | None) -> None:
    by = "there is no W_proj" if taken is None else f"W_proj takes {taken}"
    for method, base in (("mimetic", None), (None, "orthogonal")):
        with pytest.raises(vitinit.VitinitError, match=f"W_v in Own has {value} rows, and {by}: no method is made"):
            vitinit.initialize(nn.Sequential(Own(value=value, taken=taken)), method, base=base)


def test_without_w_proj_values_are_as_many_as_channels() -> None:
    m = Own(key=24, taken=None)
    vitinit.initialize(nn.Sequential(m), base="orthogonal")
    torch.testing.assert_close(m.to_v.weight @ m.to_v.weight.T, torch.eye(D))
