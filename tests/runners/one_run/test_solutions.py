"""Solutions kept on disk: what is read is what would be solved, and whatever is wrong with a file costs time only."""

import json
import os

import pytest
import torch

from tests.runners.one_run.test_reproduce import Silent
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.spec import DatasetSpec, InitializerSpec, Recipe, RunSpec
from vitinit.initializers import registry
from vitinit.initializers.attention import attention_layers
from vitinit.initializers.initialize import fidelity, pseudo_input_attention
from vitinit.initializers.registry import Resources
from vitinit.initializers.streams import stream
from vitinit.runners.basics.environment import code
from vitinit.runners.basics.setting import Execution, Setting
from vitinit.runners.basics.stop import Stop
from vitinit.runners.loaders import make_loader, open_data
from vitinit.runners.one_run import solutions
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.one_run.reproduce import compare, repeat
from vitinit.runners.one_run.solutions import Solutions

HERE = {"packages": {"torch": "2"}, "flags": {"threads": 1}, "argv": ["one"]}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The folder of the solutions."""
    monkeypatch.setenv("VITINIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "solutions"


class Solve:
    """Counts how often it is called."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return torch.arange(6.0).view(2, 3), torch.eye(3).mT[None].expand(2, 3, 3)


def test_a_solution_is_read_by_whoever_has_the_same_inputs_on_the_same_machine(cache):
    solve, first, second = Solve(), Solutions(HERE), Solutions({**HERE, "argv": ["two"]})
    found = [user([b"a", b"b"], solve) for user in (first, second)]
    assert solve.calls == 1
    for solved, read in zip(*found, strict=True):
        assert torch.equal(solved, read)
    assert (first.reused, second.reused) == (False, True)
    assert first.seconds == 0 < second.seconds
    for user in (first, second):
        user([b"c"], solve)
    took = [solutions._read(path)["seconds"] for path in cache.iterdir()]
    assert second.seconds == pytest.approx(sum(took)), "that of all that were read"


def test_other_inputs_or_another_machine_are_solved_anew():
    solve = Solve()
    Solutions(HERE)([b"a", b"b"], solve)
    for number, (environment, inputs) in enumerate(
        [
            (HERE, [b"a", b"c"]),
            (HERE, [b"ab"]),
            (HERE, [b"", b"ab"]),
            *(({**HERE, fact: "another"}, [b"a", b"b"]) for fact in ("flags", "packages", "variables", "platform")),
            *(({**HERE, fact: "another"}, [b"a", b"b"]) for fact in ("cpu", "processor", "blas")),
            *(({**HERE, fact: "another"}, [b"a", b"b"]) for fact in ("gpu", "driver", "cuda", "cudnn")),
        ],
        2,
    ):
        Solutions(environment)(inputs, solve)
        assert solve.calls == number


def test_a_damaged_file_is_solved_anew_and_mended(cache):
    solve = Solve()
    expected = Solutions(HERE)([b"a"], solve)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for number, damage in enumerate([b"", whole[:-1], whole[32:], bytes(flipped), b"x" * 100], 2):
        path.write_bytes(damage)
        user = Solutions(HERE)
        for solved, again in zip(expected, user([b"a"], solve), strict=True):
            assert torch.equal(solved, again)
        assert (solve.calls, user.reused) == (number, False)
        Solutions(HERE)([b"a"], solve)
        assert solve.calls == number, "mended"


@pytest.mark.parametrize("place", ["off", "a file", "a folder in the way"])
def test_a_cache_that_cannot_be_is_no_error(place, cache, monkeypatch, tmp_path):
    solve = Solve()
    if place == "off":
        monkeypatch.setenv("VITINIT_CACHE", "off")
        monkeypatch.chdir(tmp_path)
    elif place == "a file":
        cache.parent.write_text("no folder")
    else:
        Solutions(HERE)([b"a"], solve)
        (path,) = cache.iterdir()
        path.unlink()
        path.mkdir()
        solve.calls = 0
    for _ in range(2):
        Solutions(HERE)([b"a"], solve)
    assert solve.calls == 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path != cache.parent]


def test_the_oldest_files_make_room(cache, monkeypatch):
    solve = Solve()
    for number, name in enumerate([b"a", b"b", b"c"]):
        before = set(cache.glob("*"))
        Solutions(HERE)([name], solve)
        (path,) = set(cache.iterdir()) - before
        os.utime(path, (number, number))
    monkeypatch.setattr(solutions, "LIMIT_BYTES", int(2.5 * path.stat().st_size))
    Solutions(HERE)([b"d"], solve)
    assert len(list(cache.iterdir())) == 2
    Solutions(HERE)([b"c"], solve)
    assert solve.calls == 4, "the two newest are there"


def test_an_error_while_solving_is_passed_on_and_leaves_nothing(cache):
    def solve():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Solutions(HERE)([b"a"], solve)
    assert not cache.exists()


# In runs


def tiny(seed=0, images=100, **params) -> RunSpec:
    return RunSpec(
        dataset=DatasetSpec(name="digits", train_size=images),
        model=ViT(image_size=8, patch_size=2, width=48, depth=1, heads=4),
        base=InitializerSpec(name="kaiming_uniform"),
        method=InitializerSpec(name="impulse", params={"solver": {"name": "gradient", "steps": 100}, **params}),
        recipe=Recipe(name="small", epochs=1, batch_size=50, lr=1e-3),
        seed=seed,
    )


def carried_out(root, seed=0, images=100, params=None, **changes) -> RunRecord:
    spec = tiny(seed, images, **(params or {}))
    threads = torch.get_num_threads()
    setting = Setting(root, "tiny", root, Execution("cpu", 1, "inline"), code(), **changes)
    outcome = carry_out(Cell("Imp.-3", spec), setting, Stop())
    torch.set_num_threads(threads)
    assert isinstance(outcome, RunRecord)
    return outcome


def test_a_run_that_reads_its_solution_has_the_same_bits_and_says_so(tmp_path, monkeypatch, cache):
    first = carried_out(tmp_path / "one")
    other_data = carried_out(tmp_path / "one", images=150)
    other_seed = carried_out(tmp_path / "one", seed=1)
    again = carried_out(tmp_path / "two")
    monkeypatch.setenv("VITINIT_CACHE", "off")
    alone = carried_out(tmp_path / "three")
    read = [record.init.cached for record in (first, other_data, other_seed, again, alone)]
    assert read == [False, True, False, True, False]
    assert len(list(cache.iterdir())) == 2
    took = min(solutions._read(path)["seconds"] for path in cache.iterdir())
    assert again.init.seconds > took > 0, "what solving took is told, not what reading did"
    assert first.without_times() == again.without_times() == alone.without_times()
    before = json.loads(first.model_dump_json())
    del before["init"]["cached"]
    assert RunRecord.model_validate_json(json.dumps(before)) == first, "a record of before there was a cache"


def test_a_repetition_solves_anew(tmp_path, monkeypatch, cache):
    first = carried_out(tmp_path / "one")
    (path,) = cache.iterdir()
    wrong = [part * 2 for part in solutions._read(path)["solution"]]
    path.unlink()
    monkeypatch.setattr(solutions.Solutions, "_key", lambda self, inputs: path.stem)
    Solutions(HERE)([], lambda: tuple(wrong))
    misled = carried_out(tmp_path / "two")
    assert misled.weights != first.weights, "the file is one that a run reads"
    again = repeat(first, Execution("cpu", 1, "inline"), tmp_path / "again", tmp_path, Silent())
    assert isinstance(again, RunRecord)
    assert not again.init.cached
    assert compare(first, again).equal
    assert not compare(first, misled).equal


def test_a_run_is_solved_on_the_images_of_its_stream(tmp_path):
    params = {"solver": "svd", "pseudo_input": "images", "per_layer": True}
    record, again, other = (carried_out(tmp_path / str(i), seed, params=params) for i, seed in enumerate((3, 3, 4)))
    assert record.without_times() == again.without_times()
    assert record.init.norms != other.init.norms

    spec = tiny(3, **params)
    data = open_data(spec.dataset, 8, tmp_path, "auto", "cpu")
    loader = make_loader(data, spec.recipe, 3, torch.device("cpu"))
    model = build_model(spec.model, 10)

    def images(count):
        return loader.plain(torch.randint(100, (count,), generator=stream(3, "init/images")))

    registry.build("kaiming_uniform", {}).apply(model, stream(3, "init/base"), lambda *_: None)
    method = registry.build("impulse", spec.method.params)
    aim = method.apply_with(model, stream(3, "init/method"), lambda *_: None, Resources(training_images=images))
    found = fidelity(pseudo_input_attention(attention_layers(model)[0], aim.pseudo_ND)[None], aim.targets_LHNN[0])
    assert record.init.pseudo_input == found
