"""The board: ranks, placebos and the status of submissions, from synthetic records."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from synthetic_records import several

from vitinit.analysis import board
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.looks import Comparison, Look, Looks


def look(gain: float) -> Look:
    return Look(n=8, base=Comparison(gain=gain, low=gain - 1, high=gain + 1, p=0.01, says="gain"))


def submission(root: Path, name: str, gain: float, *answers: str) -> None:
    claim = {"method": "Mine", "protocol": 1, "tier": "quick", "base": "kaiming_uniform", "gain": gain}
    (root / name).mkdir(parents=True)
    (root / name / "claim.yaml").write_text(yaml.safe_dump(claim))
    looks.write(root / name / "records", Looks(tier="quick", worth=1, seeds=list(range(12)), taken=[look(gain)]))
    if answers:
        found = [look(gain / 2 + place).model_dump(mode="json") for place in range(len(answers))]
        verdicts = [{"answer": answer, "look": its} for answer, its in zip(answers, found, strict=True)]
        (root / name / "verdicts.yaml").write_text(yaml.safe_dump({"verdicts": verdicts}))


def test_entries_are_ranked_by_the_lower_end_and_a_refutation_stays(tmp_path: Path) -> None:
    several(
        tmp_path / "reference",
        {"Kaiming uniform": [40.0, 41.0, 42.0], "Mimetic": [45.0, 46.1, 46.9], "Imp.-3": [49.0, 41.0, 50.0]},
        study="catalogue-small",
    )
    for name, gain, *answers in (
        ("believed", 3.5),
        ("proven", 6.4, "tie", "reproduced"),
        ("refuted", 20.0, "not reproduced", "reproduced"),
    ):
        submission(tmp_path / "submissions", name, gain, *answers)
    submissions = ["--submissions", str(tmp_path / "submissions")]
    assert board.main(["--reference", str(tmp_path / "reference"), *submissions]) == 0
    lines = (tmp_path / "submissions/README.md").read_text().splitlines()
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in lines
        if line.startswith("| ") and "rank" not in line
    ]
    found = [(row[1].strip("[").split("]")[0], row[7]) for row in rows]
    assert found == [
        ("refuted", "refuted (1 of 2)"),
        ("Mimetic", "records of this project"),
        ("proven", "verified"),
        ("believed", "self-reported"),
        ("Imp.-3", "records of this project"),
    ]
    assert [row[0] for row in rows] == list("12345")
    assert rows[2][3] == "+4.20 [3.20, 5.20]", "of the last verification, not of the claim"
    assert rows[0][3] == "+11.00 [10.00, 12.00]", "of the latest of them"


@pytest.mark.parametrize("claim", ["method: [", "{base: '<script>', protocol: 1}", "{}"])
def test_a_broken_claim_is_one_line(claim: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submission(tmp_path, "mine", 1.0)
    (tmp_path / "mine/claim.yaml").write_text(claim)
    assert board.main(["--reference", str(tmp_path), "--submissions", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
