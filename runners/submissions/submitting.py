"""Write a submission from a method that was ranked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import yaml

from vitinit.benchmark.fields import is_folder_name
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.looks import LOOKS
from vitinit.benchmark.records.store import LAYOUT
from vitinit.initializers.errors import VitinitError
from vitinit.runners.launching import rank
from vitinit.runners.submissions.submission import ClaimedGain


def write(
    method: str,
    name: str,
    authors: str,
    words: str,
    tier: Literal["quick", "standard"],
    base: str | None,
    out: Path,
    results: Path,
    data: Path,
) -> Path:
    """Copy method and records, and claim what the records show.

    Raises:
        VitinitError: the method is no file with parameters left at their defaults, was not ranked to an answer, or the
            folder is there already. Nothing is written then.
    """
    fields, file = rank.named(method)
    folder = out / name
    if file is None or set(fields) != {"name"}:
        raise VitinitError(
            f"METHOD {method!r}: a submission is one file: path/to/file.py:Class, parameters at their defaults"
        )
    if not is_folder_name(name):
        raise VitinitError(f"--name {name!r}: it becomes a folder; use letters, digits, '-', '_' and '.'")
    if folder.exists():
        raise VitinitError(f"{folder}: is there already; give another --name")
    study = results / rank.prepare(method, tier, base, None, results, data).grid.stem
    found = looks.read(study)
    if not found or found.target or not found.taken:
        raise VitinitError(f"{study}: has no final answer yet: vitinit rank {method} --tier {tier}")
    look = found.taken[-1]
    claim = ClaimedGain(
        method=str(fields["name"]).rpartition(":")[2],
        authors=authors,
        words=words,
        protocol=rank.PROTOCOL,
        tier=tier,
        base=base or "kaiming_uniform",
        gain=round(look.base.gain, 2),
        over_placebo=round(look.placebo.gain, 2) if look.placebo and look.placebo.says == "gain" else None,
    )
    (folder / "records").mkdir(parents=True)
    shutil.copyfile(file, folder / "method.py")
    for path in sorted(study.iterdir()):
        if path.name in (LOOKS, LAYOUT) or path.suffix == ".json":
            shutil.copyfile(path, folder / "records" / path.name)
    text = yaml.safe_dump(claim.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    (folder / "claim.yaml").write_text(text, encoding="utf-8")
    return folder
