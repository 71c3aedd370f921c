"""The board: `python -m analysis.board` writes `results/submissions/README.md` from records and verdicts.

One table for each setting, ranked by the lower end of the interval of the gain over the own base. Committed records
fill it; a submission has its self-reported look until `vitinit verify` has written a verdict.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitinit.analysis import command, frame
from vitinit.analysis.tables.render import template
from vitinit.analysis.tables.shared import own_bases, values_by_seed
from vitinit.benchmark.files.yaml_text import mapping
from vitinit.benchmark.records import looks
from vitinit.initializers.errors import VitinitError

SETTINGS = {
    "catalogue-small": "Quick: 5 epochs, 5,000 images of CIFAR-10",
    "standard": "Standard: 40 epochs, 10,000 images of CIFAR-10",
}
"""The committed studies whose rows are on the board."""
TIERS = {"quick": "catalogue-small", "standard": "standard"}
OWN_MODEL = {"ConViT": "DeiT"}
"""Base of a row that has a model of its own."""
SUBMISSIONS = Path("results/submissions")
PLAIN = "Kaiming uniform"
"""Base that other bases are compared with."""


@dataclass(frozen=True)
class Entry:
    """One line of the board."""

    name: str
    base: str
    gain: float
    low: float
    high: float
    placebo: str
    """Gain over the placebo with its interval; empty where there is none."""
    n: int
    cost: str
    """Seconds that the initialisation takes; empty where it is not recorded."""
    status: str
    protocol: int
    link: str = ""


def committed(study: frame.Study) -> Iterator[Entry]:
    """Yield an entry for every method, and for every base but the plain one."""
    from vitinit.analysis.stats import paired

    values, column, bases = values_by_seed(study, "last"), study.columns[0], own_bases(study)
    for row in study.rows:
        method = study.examples[row, None].method
        base = OWN_MODEL.get(row) or bases.get(row) or (PLAIN if method is None else "")
        if (method and method.name == "placebo") or base in ("", row) or row in OWN_MODEL.values():
            continue
        pair = (
            paired(values[row, column], values[base, column])
            if {(row, column), (base, column)} <= values.keys()
            else None
        )
        if pair is None or pair.interval is None:
            continue
        placebo, other = "", (f"{row}, placebo", column)
        if other in values and (over := paired(values[row, column], values[other])) and over.interval:
            placebo = f"{over.mean:+.2f} [{over.interval.low:.2f}, {over.interval.high:.2f}]"
        seconds = [run.init.seconds for run in study.cells[column, row] if run.init]
        cost = f"{sorted(seconds)[len(seconds) // 2]:.2f} s" if seconds else ""
        low, high = pair.interval.low, pair.interval.high
        yield Entry(row, base, pair.mean, low, high, placebo, pair.n, cost, "records of this project", 1)


def submitted(folder: Path) -> tuple[str, Entry]:
    """Return the tier and the entry of a submission: its latest valid verdict, else its own look.

    Raises:
        VitinitError: its claim or verdicts cannot be read.
    """
    try:
        claim = mapping((folder / "claim.yaml").read_bytes(), folder / "claim.yaml")
        path = folder / "verdicts.yaml"
        verdicts: list[dict[str, Any]] = mapping(path.read_bytes(), path)["verdicts"] if path.is_file() else []
        found = looks.read(folder / "records")
        own = found.taken[-1] if found and found.taken else None
        refuted = [each for each in verdicts if each["answer"] == "not reproduced"]
        valid = [each for each in verdicts if each["look"]]
        look = looks.Look.model_validate(valid[-1]["look"]) if valid else own
        status = f"refuted ({len(refuted)} of {len(verdicts)})" if refuted else "self-reported"
        if verdicts and not refuted:
            status = {"reproduced": "verified", "invalid": "invalid"}.get(
                verdicts[-1]["answer"], verdicts[-1]["answer"]
            )
        tier, base, protocol = (
            str(claim.get("tier", "quick")),
            str(claim.get("base", "kaiming_uniform")),
            claim["protocol"],
        )
        if not base.isidentifier() or tier not in TIERS:
            raise ValueError("its base or tier has no such name")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise VitinitError(f"{folder}: is no submission: {error}") from None
    if look is None:
        raise VitinitError(f"{folder}: holds no look of vitinit rank, and no verdict")
    placebo = f"{look.placebo.gain:+.2f} [{look.placebo.low:.2f}, {look.placebo.high:.2f}]" if look.placebo else ""
    its = look.base
    link = f"{folder.name}/method.py"
    return tier, Entry(folder.name, base, its.gain, its.low, its.high, placebo, look.n, "", status, int(protocol), link)


def tables(studies: Iterable[frame.Study], submissions: Path) -> list[tuple[str, list[Entry]]]:
    """Return the title and the ranked entries of each setting that has any.

    Args:
        studies: committed ones; those that are no setting of the board are left out.
        submissions: a folder of submissions; there need be none.

    Raises:
        VitinitError: a submission cannot be read.
    """
    settings = {study.name: list(committed(study)) for study in studies if study.name in SETTINGS}
    for folder in sorted(path for path in submissions.glob("*") if path.is_dir()):
        tier, entry = submitted(folder)
        settings.setdefault(TIERS[tier], []).append(entry)
    return [
        (SETTINGS[name], sorted(settings[name], key=lambda each: -each.low)) for name in SETTINGS if name in settings
    ]


def page(reference: Path, submissions: Path) -> str:
    """Return the board as Markdown."""
    studies = [frame.load([reference], name) for name in SETTINGS if (reference / name).is_dir()]
    return template("board.txt.j2", tables=tables(studies, submissions))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m vitinit.analysis.board", description="Write the board.")
    parser.add_argument("--reference", type=Path, default=frame.REFERENCE, metavar="DIR", help="committed records")
    parser.add_argument("--submissions", type=Path, default=SUBMISSIONS, metavar="DIR")
    args = parser.parse_args(arguments)

    def run() -> None:
        text = page(args.reference, args.submissions)
        command.write(command.folder(args.submissions) / "README.md", text)

    return command.guarded(run)


if __name__ == "__main__":
    sys.exit(main())
