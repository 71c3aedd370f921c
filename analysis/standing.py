"""Where one method stands: `python -m analysis.standing STUDY`, which `vitinit rank` calls when its runs are done.

A gain is claimed where the sign-flip test says so, corrected by Holm over the two comparisons: with the method's own
base, and with its placebo.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vitinit.analysis import command, frame
from vitinit.analysis.tables.render import interval_text, p_written
from vitinit.analysis.tables.shared import LEVEL, own_bases, values_by_seed
from vitinit.analysis.text import count, escape_latex, signed
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    import pandas as pd

    from vitinit.analysis.stats import Paired
    from vitinit.benchmark.records.record import RunRecord


@dataclass(frozen=True)
class Standing:
    """A method against its base and its placebo."""

    row: str
    scores: pd.Series[float]
    """By seed, in percent."""
    base: Paired
    placebo: Paired | None
    """None: a placebo of it would say nothing, or has no finished run of a seed of it."""
    p: tuple[float, ...]
    """Of the one or two comparisons that the study names, corrected."""
    least_p: tuple[float, ...]
    """How low each of these could be with so many seeds."""

    @property
    def pairs(self) -> list[tuple[Paired, str]]:
        """The comparisons."""
        return [(self.base, "its base"), *([(self.placebo, "its placebo")] if self.placebo else [])]

    def claimed(self, which: int) -> bool:
        """Whether the difference to the base (0) or the placebo (1) is a gain."""
        return self.p[which] < LEVEL and self.pairs[which][0].mean > 0

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        if self.least_p[0] >= LEVEL:
            return f"{_are(self.base.n)} too few for any claim: p cannot go under {self.least_p[0]:.2g}."
        if self.p[0] < LEVEL and self.base.mean < 0:
            return "It is worse than its own base."
        if not self.claimed(0):
            return "No gain over its own base is shown."
        if not self.placebo and self.p[1:]:
            return "It gains over its own base. Its placebo has no finished run of a common seed."
        if not self.placebo:
            return "It gains over its own base. Whether it is a pattern that helps no placebo can tell."
        if self.least_p[1] >= LEVEL:
            return f"It gains over its own base. {_are(self.placebo.n, ' of its placebo')} too few to say more."
        if self.p[1] < LEVEL and self.placebo.mean < 0:
            return "It gains over its own base, but its placebo gains more."
        if not self.claimed(1):
            return "It gains over its own base. That it is the pattern that helps is not shown: see its placebo."
        return "It gains over its own base, and over its placebo: norms and singular values do not explain all of it."


def _are(seeds: int, of: str = "") -> str:
    return f"{count(seeds, 'seed')}{of} {'is' if seeds == 1 else 'are'}"


def standing(study: frame.Study) -> Standing:
    """Of the row whose contrasts with its base and, where it has one, its placebo the study names.

    Raises:
        VitinitError: the study names no such contrasts, or has no finished runs of them.
    """
    from vitinit.analysis.stats import holm, paired

    study.require_runs()
    if len(study.contrasts) not in (1, 2) or len({ours for ours, _ in study.contrasts}) > 1:
        raise VitinitError(
            f"study {study.name!r} does not compare one row with its base and its placebo (vitinit rank)"
        )
    values, (column,) = values_by_seed(study, "last"), study.columns[:1]
    row = study.contrasts[0][0]
    found = []
    for ours, theirs in study.contrasts:
        pair = None
        if (ours, column) in values and (theirs, column) in values:
            pair = paired(values[ours, column], values[theirs, column])
        found.append(pair)
    base, *placebos = found
    if base is None:
        both = " and ".join(study.contrasts[0])
        why = "".join(f"; {failed}" for failed in _failures(study))
        raise VitinitError(f"study {study.name!r}: {both} have no finished run of a common seed{why}")
    corrected = holm([1.0 if pair is None or pair.p is None else pair.p for pair in found])
    least = holm([1.0 if pair is None else pair.least_p for pair in found])
    return Standing(row, values[row, column], base, placebos[0] if placebos else None, tuple(corrected), tuple(least))


def lines(found: Standing, study: frame.Study, beside: frame.Study | None, more: str | None = None) -> list[str]:
    """All that is printed, the answer first."""
    text = [f"{found.row}: {found.verdict}", *_doubts(study), ""]
    for (pair, name), p in zip(found.pairs, found.p, strict=False):
        between = f" {interval_text(pair.interval)}" if pair.interval else ""
        shown = p_written(p)
        is_p = f"p {'' if shown[0] == '<' else '= '}{shown}"
        text.append(f"  minus {name:<12} {signed(pair.mean)}{between}  {is_p}  n = {pair.n}")
    from vitinit.analysis.stats import could_claim

    last, least = list(zip(found.pairs, found.least_p, strict=False))[-1]
    seen = could_claim(last[0], LEVEL / len(found.p)) if least < LEVEL else None
    if seen is not None:
        text.append(f"  With this n and spread, the test would find {seen:.1f} points in four of five such studies.")
    corrected = ", Holm over these two" if found.placebo else ", Holm over two" if found.p[1:] else ""
    text += [f"  Points of test {study.measured} by seed, 95 % interval (t); p: sign flips{corrected}.", ""]
    if found.least_p[0] < LEVEL:
        text += [
            "  p is that of one look: going on, stopping or changing the method because of it makes false gains more",
            "  frequent, for these are test images. A changed method needs other seeds and images for a claim.",
            "",
        ]
    text += [*_among(found, study, beside), ""]
    text += _machines(study, beside)
    mean, std = found.scores.mean(), found.scores.std(ddof=1) if len(found.scores) > 1 else None
    spread = "" if std is None else rf" $\pm$ {std:.2f}"
    differences = " & ".join(signed(pair.mean).replace("−", "$-$") for pair, _ in found.pairs)
    minus = ", ".join(f"{name.replace('its', 'minus')} (n = {pair.n})" for pair, name in found.pairs)
    failed = sum(run.row == found.row for run in study.contents.failed.values())
    n = f"n = {len(found.scores)}" + (f", {failed} failed" if failed else "")
    text += [
        f"LaTeX ({study.measured} ({n}), {minus}):",
        rf"  {escape_latex(found.row)} & {mean:.2f}{spread} & {differences} \\",
    ]
    ending = f"More seeds: {more}" if more else "These are all seeds of this tier."
    return text if more is None else [*text, ending]


def _doubts(study: frame.Study) -> list[str]:
    """What the verdict leaves out or mixes: runs that failed, an initialiser whose file changed between its runs."""
    text = [f"But {failed}: not in these numbers." for failed in _failures(study)]
    versions: dict[str, set[str]] = defaultdict(set)
    for run in study.contents.done.values():
        for name, source in run.sources.items():
            versions[name].add(source)
    return text + [
        f"But the file of {name} changed between the runs: these numbers mix {len(found)} versions of it."
        for name, found in sorted(versions.items())
        if len(found) > 1
    ]


def _failures(study: frame.Study) -> list[str]:
    """Which rows failed, at which seeds and how."""
    failed: dict[tuple[str, str], list[int]] = defaultdict(list)
    for failure in study.contents.failed.values():
        failed[failure.row, failure.error].append(failure.spec.seed)
    return [
        f"{row} failed at seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, sorted(seeds)))} ({error})"
        for (row, error), seeds in sorted(failed.items())
    ]


def _among(found: Standing, study: frame.Study, beside: frame.Study | None) -> list[str]:
    """Gains over the same base of the methods that were recorded in the same setting, the best first.

    A gain over a weaker base is larger for that alone, so gains over different bases are not put in one list.
    """
    from vitinit.analysis.stats import paired

    if beside is None or not beside.contents.done:
        return ["No committed records of this tier to stand beside."]
    ours = study.examples[found.row, None]
    values, (column,) = values_by_seed(beside, "last"), beside.columns[:1]
    gains = [
        (pair.mean, f"{row} (n = {pair.n})")
        for row, base in own_bases(beside).items()
        if (theirs := beside.examples[row, None]).method and theirs.method.name != "placebo"
        if (theirs.model, theirs.recipe, theirs.base) == (ours.model, ours.recipe, ours.base)
        if (row, column) in values and (base, column) in values
        if (pair := paired(values[row, column], values[base, column]))
    ]
    base = ours.base.name
    if not gains:
        return [f"{beside.name} holds no gains over the base {base} with this model and recipe to stand beside."]
    gains.append((found.base.mean, f"> {found.row} (n = {found.base.n})"))
    return [f"Gains over the base {base}, beside {beside.name}:"] + [
        f"  {signed(gain):>7}  {label}" for gain, label in sorted(gains, key=lambda each: -each[0])
    ]


def _libraries(run: RunRecord) -> dict[str, str]:
    """Versions by name; our own says nothing that the hash of an initialiser's file does not."""
    return {name: version for name, version in run.environment.get("packages", {}).items() if name != "vitinit"}


def _machines(study: frame.Study, beside: frame.Study | None) -> list[str]:
    """What differs between where these runs and those beside them were carried out, and within a seed of either."""

    runs = [run for one in (study, beside) if one for run in one.contents.done.values()]
    versions: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for name, version in _libraries(run).items():
            versions[name].add(version)
    named = ["torch", *sorted(name for name, known in versions.items() if len(known) > 1 and name != "torch")]

    def facts(one: frame.Study) -> dict[int, set[str]]:
        found: dict[int, set[str]] = defaultdict(set)
        for run in one.contents.done.values():
            on = run.environment.get("gpu") or run.environment.get("processor")
            its = _libraries(run)
            found[run.spec.seed].add(", ".join([str(on), *(f"{name} {its[name]}" for name in named if name in its)]))
        return found

    by_seed = {one.name: facts(one) for one in (study, beside) if one}
    here, *others = (sorted(set().union(*found.values())) for found in by_seed.values())
    mixed = {name: sorted(seed for seed, on in found.items() if len(on) > 1) for name, found in by_seed.items()}
    text = []
    for there in others:
        if there and here != there:
            text += [
                f"Here: {'; '.join(here)}. There: {'; '.join(there)}.",
                "Another machine or library gives other bits, so gains compare by their size only.",
                *([] if any(mixed.values()) else ["Each difference by seed is within one machine."]),
            ]
    text += [
        f"In {name} the runs of seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))} come from more than "
        "one machine or library: so do their differences."
        for name, seeds in mixed.items()
        if seeds
    ]
    return [*text, ""] if text else []


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m vitinit.analysis.standing", description="Where a ranked method stands."
    )
    parser.add_argument("study", metavar="STUDY", help="of vitinit rank")
    command.takes_results(parser)
    parser.add_argument("--beside", type=Path, metavar="DIR", help="folder of the study to stand beside")
    parser.add_argument("--more", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    return command.guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    study = frame.load(args.results, args.study)
    beside = frame.load([args.beside.parent], args.beside.name) if args.beside and args.beside.is_dir() else None
    command.say(lines(standing(study), study, beside, args.more))


if __name__ == "__main__":
    sys.exit(main())
