"""The commands `vitinit submit` and `vitinit verify`: a claim for the board, and the same claim on fresh seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vitinit.benchmark.datasets import load as datasets
from vitinit.runners.basics.environment import code
from vitinit.runners.cli.options import LOCAL, DataOption, ResultsOption, console
from vitinit.runners.cli.rank import train_seeds


def submit(
    method: Annotated[str, typer.Argument(help="path/to/file.py:Class, as it was ranked.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Folder of the submission.")],
    authors: Annotated[str, typer.Option(metavar="TEXT", help="Who submits it.")],
    words: Annotated[str, typer.Option(metavar="TEXT", help="One paragraph: what the method does and why.")],
    tier: Annotated[Literal["quick", "standard"], typer.Option(help="As it was ranked.")] = "quick",
    base: Annotated[str | None, typer.Option(help="As it was ranked.")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where submissions lie.")] = Path("results/submissions"),
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Write a submission: the method's one file, a claim, and the records of its rank."""
    from vitinit.runners.submissions.submitting import write

    folder = write(method, name, authors, words, tier, base, out, results, datasets.data_dir(data_dir))
    console.print(f"{folder}: read claim.yaml, then open a pull request with this folder alone")


def verify(
    folder: Annotated[Path, typer.Argument(help="results/submissions/NAME")],
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
) -> None:
    """Train a submission anew on fresh seeds, and write whether its claim is reproduced. Exit code 1: it is not.

    Its code runs in a process of its own, without network, other files, records or images where the system can keep it
    from them; what it sets is trained and judged by this installation's code.
    """
    from vitinit.runners.submissions import verify as verifying

    data = datasets.data_dir(data_dir)
    commit = code()["commit"] or "no-commit"
    verdict = verifying.verify(
        folder, commit, results, data, lambda ranked, first, end: train_seeds(ranked, first, end, data, results)
    )
    console.print(f"{folder.name}: {verdict.answer}: {verdict.reason}")
    if verdict.look:
        for label, found in (("base", verdict.look.base), ("placebo", verdict.look.placebo)):
            if found:
                text = f"{found.gain:+.2f} [{found.low:.2f}, {found.high:.2f}], p {found.p:.4f}, n = {verdict.look.n}"
                console.print(f"  minus its {label}: {text}")
    console.print(
        f"  kept from: {', '.join(verdict.limits) or 'nothing'}; commit {verdict.commit}; {folder}/verdicts.yaml"
    )
    raise typer.Exit(0 if verdict.answer == "reproduced" else 1)
