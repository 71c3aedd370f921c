"""Runs of models by name: measured where attention is known."""

from __future__ import annotations

import pytest

from tests.faults.harness import setting
from tests.runners.small_run import spec
from vitinit.benchmark.grids.parts import resolve_model
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import InitializerSpec
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.setting import Execution, check_execution
from vitinit.runners.basics.stop import Stop
from vitinit.runners.one_run.carry_out import carry_out

VIT = {"timm": "vit_tiny_patch16_224", "img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 1, "num_heads": 3}
XCIT = {"timm": "xcit_nano_12_p8_224", "img_size": 16, "embed_dim": 16, "depth": 1, "num_heads": 2}


def cell(model: dict, method: str | None) -> Cell:
    named = method and InitializerSpec(name=method)
    return Cell("any", spec(model=resolve_model(model), base=InitializerSpec(name="trunc_normal"), method=named))


@pytest.mark.long
@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize(
    ("model", "method", "probed"),
    [({**VIT, "drop_rate": 0.1, "drop_path_rate": 0.1}, "mimetic", True), (XCIT, None, False)],
)
def test_attention_is_measured_where_it_is_known(model, method, probed, tmp_path):
    said: list[str] = []
    one, where = cell(model, method), setting(tmp_path)
    carry_out(one, where, Stop(), lambda event: said.append(event.trouble))
    record = Store(where.root).read(where.study).done[one.run_id]
    assert record.run_id == record.spec.run_id == one.run_id
    assert len(record.probes) == (len(record.history) + 1 if probed else 0)
    assert any("probes are left out: " in text for text in said) is not probed


def test_a_batch_norm_is_found_so_that_its_batches_are_not_cut(tmp_path):
    one = cell({"timm": "resnet18", "img_size": 32}, None)
    with pytest.raises(VitinitError, match="BatchNorm"):
        check_execution(one.spec, Execution("cpu", 1, "inline", micro_batch=8))
