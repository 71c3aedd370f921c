"""What becomes of each run of a synthetic study: plan, status and its --watch, on a few records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rich.cells import cell_len
from study import NAME, make

from vitinit.analysis.tables import __main__ as tables
from vitinit.benchmark.grids.grid import load
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.terminal import NEVER_FOLDED
from vitinit.runners.basics.stop import Stop
from vitinit.runners.cli import plan as cli_plan
from vitinit.runners.cli.options import console
from vitinit.runners.launching.plan import Planned, plan
from vitinit.runners.one_run import claims


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """A study of 20 runs: 15 done, 2 failed, 3 to do."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("VITINIT_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    make(tmp_path, seeds=1, epochs=2, failed=2, to_do=3)
    return tmp_path


@pytest.fixture
def vitinit(vitinit, monkeypatch):
    """Run the command line in this process and return what it printed, as into a pipe."""
    monkeypatch.setattr(console, "width", NEVER_FOLDED)

    def run(*arguments: str) -> str:
        code, printed, _ = vitinit(*arguments)
        assert code == 0
        return printed

    return run


def planned(folder: Path, state: str) -> list[Planned]:
    items, _ = plan(load(f"{NAME}.yaml"), Store(folder / "results/local"), folder / "data")
    return [item for item in items if item.state == state]


def unfinished(folder: Path, item: Planned) -> Path:
    return claims.folder(folder / "results/local", NAME, item.cell.run_id)


def test_every_run_is_a_line_and_the_counts_are_right(vitinit, folder):
    lines = vitinit("plan", f"{NAME}.yaml").splitlines()
    assert lines[1] == "20 runs: 15 done, 2 failed, 3 to do"
    assert lines[2].split() == ["run", "row", "dataset", "seed", "epochs", "state"]
    cells = load(f"{NAME}.yaml").cells
    assert [line.split()[0] for line in lines[3:23]] == [cell.run_id for cell in cells]
    assert sum(line.endswith("failed: RuntimeError: out of memory") for line in lines[3:23]) == 2
    status = vitinit("status", f"{NAME}.yaml")
    assert "20 runs: 15 done, 2 failed, 3 to do" in status
    assert status.count("RuntimeError: out of memory") == 2
    assert "done   failed   to do" in status, "only what occurs"
    assert tables.main(["--study", NAME]) == 0


def test_done_before_live_before_skip_before_failed(folder):
    done, failed, to_do = (planned(folder, state)[0] for state in ("done", "failed", "to do"))
    stop = Stop()
    with (
        claims.held(unfinished(folder, done), stop),
        claims.held(unfinished(folder, failed), stop),
        claims.held(unfinished(folder, to_do), stop) as claim,
    ):
        claim.update(1, 2, "top-1 12.3%", 90.0)
        shutil.rmtree(folder / "data")
        live = planned(folder, "live")
        assert {item.cell.run_id for item in live} == {failed.cell.run_id, to_do.cell.run_id}
        reasons = {item.cell.run_id: item.reason for item in live}
        assert reasons[to_do.cell.run_id] == claim.owner.describe()
        assert "epoch 1/2, top-1 12.3%, about 1 min 30 s left" in reasons[to_do.cell.run_id]
        assert len(planned(folder, "done")) == 15
        assert len(planned(folder, "skip")) == 3
    assert len(planned(folder, "skip")) == 5, "no longer live"
    assert planned(folder, "failed") == []


def test_a_stopped_run_is_to_do_and_says_that_it_resumes(folder, vitinit):
    first, second, third = planned(folder, "to do")
    for item in (first, second):
        unfinished(folder, item).mkdir(parents=True)
    (unfinished(folder, first) / "step-00000100.ckpt").touch()
    reasons = {item.cell.run_id: item.reason for item in planned(folder, "to do")}
    assert reasons == {
        first.cell.run_id: "stopped, resumes from its checkpoint",
        second.cell.run_id: "",
        third.cell.run_id: "",
    }
    assert "to do: stopped, resumes from its checkpoint" in vitinit("plan", f"{NAME}.yaml")


def test_live_runs_are_counted_and_their_owners_named(folder, vitinit):
    item = planned(folder, "to do")[0]
    with claims.held(unfinished(folder, item), Stop()) as claim:
        for command in ("plan", "status"):
            text = vitinit(command, f"{NAME}.yaml")
            assert "20 runs: 15 done, 1 live, 2 failed, 2 to do" in text
            assert f"live {item.cell.run_id}, {item.cell.describe()}: {claim.owner.describe()}" in text


def test_text_from_files_is_shown_as_it_is_but_safe(vitinit):
    grid = Path(f"{NAME}.yaml")
    grid.write_text(grid.read_text().replace("Mimetic:", '"[red]Imp.-é 好 [/red] :smile:":'))
    text = vitinit("plan", f"{NAME}.yaml", "--only", "seed=0")
    lines = [line for line in text.splitlines() if "好" in line]
    said = lines.pop()  # the records have the old label
    assert said.startswith("row '[red]Imp.-é 好 [/red] :smile:' is recorded as 'Mimetic', and tables call it so")
    assert all("[red]Imp.-é 好 [/red] :smile:  " in line for line in lines)
    assert len(lines) == 4
    before = [line.partition("cifar")[0] for line in text.splitlines() if "cifar" in line]
    assert len(set(map(cell_len, before))) == 1, "a wide character takes two columns"


def test_watching_ends_when_nothing_is_left(folder, vitinit, monkeypatch):
    """Between two looks a run ends; the same store looks again."""
    stores, waits = [], []
    original = Store.outline
    monkeypatch.setattr(Store, "outline", lambda self, study: stores.append(self) or original(self, study))

    def wait(seconds: float) -> None:
        waits.append(seconds)
        make(folder, seeds=1, epochs=2, failed=2, to_do=3 - len(waits))

    monkeypatch.setattr(cli_plan.time, "sleep", wait)
    text = vitinit("status", f"{NAME}.yaml", "--watch", "--interval", "0.5")
    assert waits == [0.5, 0.5, 0.5]
    assert len({id(store) for store in stores if store.root == Path("results/local")}) == 1
    assert "20 runs: 18 done, 2 failed" in text


def test_watching_ends_with_ctrl_c(vitinit, monkeypatch):
    def interrupted(seconds: float) -> None:
        assert seconds == 5
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_plan.time, "sleep", interrupted)
    assert "3 to do" in vitinit("status", f"{NAME}.yaml", "--watch")
