"""A run of every model family: stopped, taken up again and repeated from its record, always with the same bits."""

from __future__ import annotations

import pytest

from benchmark.grids.fitting import misfit
from benchmark.grids.resolve import resolve_model
from benchmark.grids.schema import Cell
from benchmark.models.build import build_model
from benchmark.models.registry import families
from benchmark.records.store import Store
from benchmark.spec import InitializerSpec
from initializers.attention import has_attention
from runners.basics.stop import Stop
from runners.one_run.carry_out import carry_out
from runners.one_run.reproduce import compare, execution, repeat
from tests.faults.harness import setting, stopped_after
from tests.runners.one_run.test_reproduce import Silent
from tests.runners.small_run import spec

pytestmark = pytest.mark.usefixtures("undisturbed")


@pytest.mark.parametrize("arch", families())
def test_a_run_that_was_stopped_and_one_that_is_repeated_end_with_the_same_bits(arch, tmp_path):
    fields = {"image_size": 8, "patch_size": 1 if arch == "swin" else 4, "drop_rate": 0.1}
    presets = [resolve_model({"preset": name, **fields}) for name in families()[arch].presets]
    model = min(presets, key=lambda preset: preset.size)
    base, method = (InitializerSpec(name=name) for name in ("trunc_normal", "mimetic"))
    fits = not misfit(model, base, method)
    cell = Cell("any", spec(model=model, base=base, method=method if fits else None))
    where = setting(tmp_path / "resumed")
    stopped_after(1, cell, where)
    carry_out(cell, where, Stop())
    record = Store(where.root).read(where.study).done[cell.run_id]
    assert len(record.sessions) == 2
    assert has_attention(build_model(model, 10)) == fits == bool(record.probes) == bool(record.init.start)
    assert len(record.probes) == len(record.history) + 1 or not fits
    again = repeat(record, execution(record), tmp_path / "again", tmp_path, Silent())
    assert compare(record, again).equal
