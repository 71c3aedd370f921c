"""Whole runs in this process: what stops and changes do to them, on a validation part too."""

import re
from dataclasses import replace

import pytest
from PIL import Image

from tests.faults.harness import assert_same, setting, stopped_after
from tests.runners.small_run import spec
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import DatasetSpec, Recipe
from vitinit.runners.basics.setting import Stop
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.carry_out import carry_out

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_run_whose_images_have_changed_fails_until_they_are_put_back(tmp_path):
    for number in range(50):
        path = tmp_path / f"pets/{'cat' if number % 2 else 'dog'}/{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (5 * number, 9, 200 - number)).save(path)
    cell = Cell("folder", spec(dataset=DatasetSpec(name="folder", path=str(tmp_path / "pets"))))
    whole, resumed = setting(tmp_path / "whole"), setting(tmp_path / "resumed")
    carry_out(cell, whole, Stop())
    assert not whole.folder(cell.run_id).exists(), "of a finished run only its record is left"
    stopped_after(1, cell, resumed)
    kept = path.read_bytes()
    Image.new("RGB", (8, 8), (255, 255, 255)).save(path)
    failed = carry_out(cell, resumed, Stop())
    assert (failed.status, failed.error) == ("failed", "VitinitError")
    assert re.search(f"images have changed .* put them back, or remove unfinished/{cell.run_id}", failed.message)
    path.write_bytes(kept)
    carry_out(cell, replace(resumed, retried={cell.run_id: failed.written}), Stop())
    assert_same(whole, resumed, cell)


def test_a_run_that_another_process_has_taken_over_at_its_end_is_not_recorded(tmp_path):
    cell, where = Cell("small", spec()), setting(tmp_path)
    folder = where.folder(cell.run_id)

    def taken_over(event):
        if event.epoch == cell.spec.recipe.epochs:
            (folder / "claim-2.json").write_text(claims.UNKNOWN.model_dump_json())

    end = carry_out(cell, where, Stop(), taken_over)
    assert (end.status, end.reason) == ("stopped", "another process has taken the run over")
    assert Store(where.root).outcome("faults", cell.run_id) is None


def test_what_changed_before_an_earlier_session_is_not_forgotten(tmp_path):
    """Another code and execution from the second of three sessions on; the time is that of all three."""
    cell, before = (
        Cell("small", spec(recipe=Recipe(name="small", epochs=3, batch_size=50, lr=1e-3))),
        replace(setting(tmp_path), code={"source": "one"}),
    )
    execution = replace(before.execution, micro_batch=20)
    since = replace(before, code={"source": "another"}, execution=execution)
    stopped_after(1, cell, before)
    stopped_after(2, cell, since)
    end = carry_out(cell, since, Stop())
    (change,) = end.environment["changed_while_running"]
    assert change["from_step"] == 2
    assert change["changed"]["source"] == ["one", "another"]
    assert change["changed"]["execution.micro_batch"] == [None, 20]
    assert len(end.sessions) == 3
    assert end.seconds == pytest.approx(sum(session.seconds for session in end.sessions))
