"""Submissions of strangers: hostile ones are kept out or found out, an honest one is reproduced."""

from __future__ import annotations

import hashlib
import itertools
import json
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from tests.runners.small_run import inside, tiny_tier
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.looks import Comparison, Look
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.streams import derive, stream
from vitinit.runners.launching import rank
from vitinit.runners.submissions import submission, submitting
from vitinit.runners.submissions import verify as verifying
from vitinit.runners.submissions.stored import Stored
from vitinit.runners.submissions.submission import ClaimedGain

pytestmark = pytest.mark.long

METHOD = """
import os, socket, sys, time
from pathlib import Path
from typing import ClassVar
import torch
from vitinit.initializers.registry import Initializer
from vitinit.initializers.streams import derive

class Theirs(Initializer):
    '''Theirs.'''
    name: ClassVar[str] = "theirs"
    touches: ClassVar[tuple[str, ...]] = ("*",)
    @torch.no_grad()
    def apply(self, model, generator, progress):
        BODY
"""
CLAIM = {"method": "Theirs", "authors": "A. Stranger", "words": "It helps.", "protocol": 1, "gain": 5.0}


@pytest.fixture(scope="module")
def spec():
    return grid.load("smoke", seeds=[0]).cells[0].spec


def drawn(body: str, spec, folder: Path, seeds=(5,), seconds: int = 60, megabytes: int = 16) -> list[str]:
    content = METHOD.replace("BODY", body.replace("\n", "\n        ")).encode()
    return verifying.draw(content, "Theirs", spec, 10, list(seeds), folder / "starts", seconds, megabytes)


def test_starts_are_those_of_the_method_at_each_seed(spec, tmp_path: Path) -> None:
    had = drawn(
        "for p in model.parameters(): p.copy_(torch.randn(p.shape, generator=generator))", spec, tmp_path, (5, 6)
    )
    assert {"cpu", "memory", "file size"} <= set(had)
    for seed in (5, 6):
        found = torch.load(tmp_path / f"starts/{derive(seed, 'init/method')}.pt", weights_only=True)
        first = next(iter(found.values()))
        assert torch.equal(first, torch.randn(first.shape, generator=stream(seed, "init/method")))


@pytest.mark.parametrize("does", ["reads images", "edits records", "uses the network", "changes the protocol"])
def test_what_a_method_is_kept_from(does: str, spec, tmp_path: Path) -> None:
    secret, record = tmp_path / "test_batch", tmp_path / "record.json"
    secret.write_bytes(b"images")
    record.write_bytes(b"{}")
    protocol = Path(rank.__file__)
    before = hashlib.sha256(protocol.read_bytes()).digest()
    with socket.create_server(("127.0.0.1", 0)) as server:
        body, needs = {
            "reads images": (f"open({str(secret)!r}, 'rb').read()", "files"),
            "edits records": (f"open({str(record)!r}, 'w').write('better')", "files"),
            "changes the protocol": (f"open({str(protocol)!r}, 'a').write('# theirs')", "files"),
            "uses the network": (f"socket.create_connection({server.getsockname()!r}, 5)", "network"),
        }[does]
        probe = drawn("pass", spec, tmp_path)
        if needs not in probe:
            pytest.skip(f"this system cannot keep a process from {needs}")
        with pytest.raises(verifying.Invalid, match="Permission denied|PermissionError|unreachable|refused"):
            drawn(body, spec, tmp_path)
    assert record.read_bytes() == b"{}"
    assert hashlib.sha256(protocol.read_bytes()).digest() == before


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("while True: pass", "did not end within 2 s of processor time"),
        ("time.sleep(1e6)", "did not end within 20 s"),
        ("open('large', 'wb').write(bytes(2**26))", "File too large"),
        ("for i in range(10**6): open(f'file{i}', 'wb').write(bytes(2**20 // 2))", "wrote more than 2 MB|did not end"),
        ("bytearray(2**36)", "MemoryError|memory"),
        ("os._exit(0)", "left no start of seed 5"),
        (
            "os.symlink('/etc/hostname', f'starts/{derive(5, \"init/method\")}.pt')\nos._exit(0)",
            "left no start of seed 5",
        ),
        ("next(iter(model.parameters())).fill_(float('nan'))", "finite|nan"),
    ],
    ids=["never ends", "sleeps", "a large file", "many files", "memory", "nothing", "a link", "not finite"],
)
def test_a_method_that_takes_too_much_is_invalid(body: str, why: str, spec, tmp_path: Path, monkeypatch) -> None:
    """By a clock that stands still but for the one that sleeps: importing takes long on a busy machine."""
    clock = itertools.count(0, 10 if "sleep" in body else 0)
    monkeypatch.setattr(verifying, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=time.sleep))
    with pytest.raises(verifying.Invalid, match=why):
        drawn(body, spec, tmp_path, seconds=2, megabytes=1)


def test_nothing_that_a_method_has_started_outlives_it(spec, tmp_path: Path, monkeypatch) -> None:
    """Where this system cannot give it processes of its own."""
    monkeypatch.setattr(verifying, "isolated", list)
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = f"os.held = socket.create_connection({server.getsockname()!r})"
        drawn(f"{held}\nif not os.fork():\n    time.sleep(600)", spec, tmp_path)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(30)
            assert connection.recv(1) == b"", "closed by the last process that had it"


def test_a_start_is_read_as_tensors_and_nothing_else(tmp_path: Path) -> None:
    model, generator = torch.nn.Linear(2, 2), stream(0, "init/method")
    path = tmp_path / f"{generator.initial_seed()}.pt"
    half = {"weight": torch.zeros(2, 2).half(), "bias": torch.zeros(2)}
    other = {"weight": torch.zeros(3), "bias": torch.zeros(2)}
    for content in ({"weight": torch.zeros(2, 2)}, other, half, Path("code")):
        torch.save(content, path)
        with pytest.raises(VitinitError, match="holds other|must be|cannot be read"):
            Stored(folder=str(tmp_path)).apply(model, generator, lambda *_: None)


def test_seeds_are_nobodys_choice() -> None:
    seeds = verifying.fresh_seeds("a" * 64, "c" * 40, 12)
    assert len(set(seeds)) == 12
    assert min(seeds) >= 1000
    assert seeds == verifying.fresh_seeds("a" * 64, "c" * 40, 12)
    for other in (("b" * 64, "c" * 40), ("a" * 64, "d" * 40)):
        assert not set(seeds) & set(verifying.fresh_seeds(*other, 12))


@pytest.mark.parametrize(
    ("claimed", "over_placebo", "base", "placebo", "answer"),
    [
        (2.0, 1.0, "gain", "gain", "reproduced"),
        (2.0, None, "gain", "excluded", "reproduced"),
        (2.0, 1.0, "gain", "open", "tie"),
        (2.0, 1.0, "gain", "excluded", "not reproduced"),
        (9.0, None, "gain", "gain", "not reproduced"),
        (2.0, None, "open", "open", "tie"),
        (2.0, None, "loss", "open", "not reproduced"),
        (2.0, None, "excluded", "open", "not reproduced"),
        (2.0, 1.0, "gain", None, "tie"),
        (2.0, None, "gain", None, "reproduced"),
    ],
)
def test_a_claim_is_judged_by_fixed_rules(claimed, over_placebo, base, placebo, answer) -> None:
    """The interval of fresh seeds is 1 to 3 points."""
    claim = ClaimedGain.model_validate({**CLAIM, "gain": claimed, "over_placebo": over_placebo})
    found = [
        Comparison.model_validate({"gain": 2, "low": 1, "high": 3, "p": 0.1, "says": says}) if says else None
        for says in (base, placebo)
    ]
    look = Look(n=8, base=found[0], placebo=found[1])
    assert submission.judge(claim, look)[0] == answer


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Verify a method body under a tiny tier, looks at 3 and 4 seeds, at one worker."""
    monkeypatch.setitem(rank.TIERS, "quick", tiny_tier(tmp_path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(looks, "PLAN", ((3, 0.26),))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("VITINIT_METHODS", "")
    monkeypatch.setattr(sys, "path", list(sys.path))

    def verified(body: str, **claim: object) -> submission.Verdict:
        folder = tmp_path / "theirs"
        folder.mkdir(exist_ok=True)
        (folder / "method.py").write_text(METHOD.replace("BODY", body.replace("\n", "\n        ")))
        (folder / "claim.yaml").write_text(yaml.safe_dump({**CLAIM, **claim}))
        results = tmp_path / "results"

        def carry_out(ranked: rank.Ranked, first: int, end: int) -> int:
            seeds = ",".join(map(str, ranked.looks.seeds[first:end]))
            options = ["--executor", "inline", "--no-download", "--results", str(results), "--no-probes"]
            return inside("vitinit.runners.cli", ["run", str(ranked.grid), "--seeds", seeds, *options])

        return verifying.verify(folder, "0" * 40, results, tmp_path, carry_out)

    return verified


KAIMING = """
for module in model.modules():
    if isinstance(module, torch.nn.Linear):
        torch.nn.init.uniform_(module.weight, -1, 1, generator=generator).mul_(module.weight.shape[1] ** -0.5)
"""


def test_a_submission_is_trained_on_fresh_seeds_and_judged_by_the_rules(submitted, tmp_path: Path) -> None:
    """The gain is computed anew from the records: of the starts that were drawn, at the seeds that were drawn."""
    verdict = submitted(KAIMING, base="trunc_normal", gain=0.5)
    assert verdict.valid
    assert verdict.look
    assert verdict.answer == submission.judge(ClaimedGain.model_validate({**CLAIM, "gain": 0.5}), verdict.look)[0]
    (study,) = (path.parent for path in (tmp_path / "results").glob("rank-Stored-*/LOOKS"))
    runs = [json.loads(path.read_bytes()) for path in study.glob("*.json")]
    top1 = {(run["row"], run["spec"]["seed"]): run["history"][-1]["test_top1"] for run in runs}
    gains = [top1["Stored", seed] - top1["Stored's base", seed] for seed in verdict.seeds]
    assert verdict.look.base.gain == pytest.approx(sum(gains) / 3)


def test_one_that_works_at_seed_0_only_is_not_reproduced_and_a_refutation_stays(submitted, tmp_path: Path) -> None:
    cheat = submitted("if generator.initial_seed() != derive(0, 'init/method'): return\n" + KAIMING, gain=60.0)
    assert (cheat.answer, cheat.valid) == ("not reproduced", True), cheat
    assert cheat.look
    assert cheat.look.base.gain == 0, "it does nothing at another seed"
    broken = submitted("raise ValueError('no')", gain=1.0)
    assert (broken.answer, broken.valid, broken.look) == ("invalid", False, None)
    assert [each.answer for each in submission.verdicts(tmp_path / "theirs")] == ["not reproduced", "invalid"]


def test_what_is_submitted_claims_the_gains_that_were_shown_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rank.TIERS, "quick", tiny_tier(tmp_path))
    monkeypatch.setenv("VITINIT_METHODS", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    method, results = tmp_path / "theirs.py", tmp_path / "results"
    method.write_text(METHOD.replace("BODY", KAIMING.replace("\n", "\n        ")))

    def write(name: str) -> Path:
        of = (f"{method}:Theirs", name, "A. Stranger", "It helps.", "quick", None)
        return submitting.write(*of, tmp_path / "out", results, tmp_path)

    with pytest.raises(VitinitError, match="has no final answer yet"):
        write("early")
    assert not (tmp_path / "out").exists()
    (study,) = (path.parent for path in results.glob("*/LOOKS"))
    (study / "0123456789abcdef.json").write_text("a record")
    plan = looks.read(study)
    assert plan
    for says, claimed in (("gain", 1.23), ("open", None)):
        base, placebo = ({"gain": 1.234, "low": 1, "high": 2, "p": 0.01, "says": each} for each in ("gain", says))
        look = Look.model_validate({"n": 8, "base": base, "placebo": placebo})
        looks.write(study, plan.model_copy(update={"taken": [look] * len(plan.plan)}))
        claim, content = submission.read(write(says))
        assert (claim.method, claim.gain, claim.over_placebo) == ("Theirs", 1.23, claimed)
        assert content == method.read_bytes()
        kept = {path.name: path.read_bytes() for path in (tmp_path / "out" / says / "records").iterdir()}
        assert kept == {path.name: path.read_bytes() for path in study.iterdir()}


def test_what_is_no_submission_is_refused_in_one_line_and_gets_no_verdict(submitted, tmp_path: Path) -> None:
    for claim, message in (
        ({"protocol": 2}, "protocol 2, and this is protocol 1"),
        ({"base": "theirs"}, "none of ours"),
        ({"gain": float("nan")}, "gain"),
        ({"seeds": [0]}, "seeds"),
    ):
        with pytest.raises(VitinitError, match=message):
            submitted("pass", **claim)
    (tmp_path / "theirs/method.py").unlink()
    (tmp_path / "theirs/method.py").symlink_to("/etc/passwd")
    with pytest.raises(VitinitError, match="is not there"):
        submission.read(tmp_path / "theirs")
    assert not (tmp_path / "theirs/verdicts.yaml").exists()
