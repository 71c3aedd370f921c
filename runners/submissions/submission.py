"""A submission's folder, its claim, and what `vitinit verify` found: `results/submissions/<name>/`.

`method.py` is the method's one file. `claim.yaml` is the claim. `records/` holds the records of its `vitinit rank`,
which are shown as self-reported and decide nothing. `verdicts.yaml` is written by `verify` alone and only ever grows.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError

from vitinit.benchmark.fields import Count, FolderName, Frozen
from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.files.yaml_text import mapping
from vitinit.benchmark.records.looks import Look
from vitinit.initializers.errors import VitinitError, explain

OUT_OF_TIME = 99
"""Exit code of the process that runs a method, when its processor time is over."""
Points = Annotated[float, Field(ge=-100, le=100)]
LARGEST = 2**18
"""Bytes of a method's file or a claim."""


class ClaimedGain(Frozen):
    """`claim.yaml`."""

    method: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
    """Class in `method.py`."""
    authors: Annotated[str, Field(min_length=1, max_length=300)]
    words: Annotated[str, Field(min_length=1, max_length=2_000)]
    """One paragraph: what the method does and why."""
    protocol: Count
    tier: Literal["quick", "standard"] = "quick"
    base: FolderName = "kaiming_uniform"
    gain: Points
    """Points over the base."""
    over_placebo: Points | None = None
    """Points over the placebo; None where none is claimed."""


class Verdict(Frozen):
    """One verification."""

    protocol: Count
    rule: Count
    commit: str
    digest: str
    """Digest of `method.py` and `claim.yaml`."""
    seeds: list[int]
    limits: list[str]
    """Limits that the system could impose on the method."""
    valid: bool
    reason: str = ""
    """Reason why it is not valid; else the deciding difference."""
    answer: Literal["reproduced", "not reproduced", "tie", "invalid"]
    look: Look | None = None


def read(folder: Path) -> tuple[ClaimedGain, bytes]:
    """Return the claim and the method's file.

    Raises:
        VitinitError: a file is missing, too large, a link, or no claim.
    """
    content = []
    for name in ("claim.yaml", "method.py"):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise VitinitError(f"{path}: is not there, and a submission has it: vitinit submit")
        if path.stat().st_size > LARGEST:
            raise VitinitError(f"{path}: has more than {LARGEST:,} bytes")
        content.append(path.read_bytes())
    try:
        return ClaimedGain.model_validate(mapping(content[0], folder / "claim.yaml")), content[1]
    except ValidationError as error:
        raise explain(error, str(folder / "claim.yaml"), ClaimedGain) from None


def digest(folder: Path) -> str:
    """Return the sha256 of claim and method."""
    both = b"".join(hashlib.sha256((folder / name).read_bytes()).digest() for name in ("claim.yaml", "method.py"))
    return hashlib.sha256(both).hexdigest()


def verdicts(folder: Path) -> list[Verdict]:
    """Return all verdicts, the latest last.

    Raises:
        VitinitError: the file is there and holds something else.
    """
    path = folder / "verdicts.yaml"
    if not path.is_file():
        return []
    try:
        return [Verdict.model_validate(each) for each in mapping(path.read_bytes(), path)["verdicts"]]
    except (ValidationError, KeyError, TypeError):
        raise VitinitError(f"{path}: holds no verdicts of vitinit verify") from None


def add_verdict(folder: Path, verdict: Verdict) -> None:
    """Append a verdict; those of before stay."""
    every = [each.model_dump(mode="json") for each in (*verdicts(folder), verdict)]
    write_atomically(folder / "verdicts.yaml", yaml.safe_dump({"verdicts": every}, sort_keys=False).encode())


def judge(claim: ClaimedGain, look: Look) -> tuple[Literal["reproduced", "not reproduced", "tie"], str]:
    """Compare a claim with what fresh seeds say: rule 1.

    A claimed gain is reproduced if the looks show a gain and the claim does not lie above its interval. It is not
    reproduced where a loss is shown, a gain worth having is excluded, or the claim lies above the interval. All else
    is a tie, so is a claim over a placebo where none can be made.
    """
    asked = [(claim.gain, look.base, "its base")]
    if claim.over_placebo is not None and look.placebo:
        asked.append((claim.over_placebo, look.placebo, "its placebo"))
    for claimed, found, name in asked:
        if found.says in ("loss", "excluded"):
            return "not reproduced", f"over {name}: {found.says}, at most {found.high:.2f} points"
        if claimed > found.high:
            return "not reproduced", f"claims {claimed:.2f} points over {name}, and at most {found.high:.2f} are left"
    if claim.over_placebo is not None and look.placebo is None:
        return "tie", "claims a gain over its placebo, and it has none"
    if all(found.says == "gain" for _, found, _ in asked):
        return "reproduced", "a gain over " + " and over ".join(name for *_, name in asked)
    return "tie", f"no gain over {next(name for _, found, name in asked if found.says != 'gain')} is shown or excluded"
