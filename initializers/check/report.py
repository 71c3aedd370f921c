"""Report of a check: verdict, warnings with their usual mends, numbers by layer. Imports no torch."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 80
"""Columns of the page."""
BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Finding:
    """Warning of a check."""

    key: str
    """Short name of the kind of trouble, such as `head-too-large`; it stays between versions."""
    where: str
    """Tensor, layer or argument."""
    what: str
    """Measurement, beside the limit that it passes."""
    mend: str
    """Usual remedy."""
    source: str
    """Paper, issue or formula that the limit or the mend is from."""

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.key}: {self.where}: {self.what}"


@dataclass(frozen=True)
class Group:
    """Tensors of one purpose, and the named base whose distribution they have."""

    name: str
    tensors: int
    """Number of tensors."""
    bases: tuple[str, ...]
    """Bases that fit all of them; several where these have the same distribution; empty where none fits."""
    nearest: str
    """The base at the smallest distance."""
    distance: float
    """Kolmogorov-Smirnov distance of the nearest base: the largest gap between the two distribution functions."""
    other: float
    """Distance of the nearest base that does not fit; 1 where there is none."""
    looks: str
    """Distribution in words."""

    def __str__(self) -> str:
        """Return one line: base, how sure, distribution."""
        count = f"{self.tensors} tensor{'s' if self.tensors != 1 else ''}"
        if self.bases:
            sure = "" if self.other >= 1 else f"; next other one {self.other:.2f}"
            names = self.bases if len(self.bases) <= 3 else (*self.bases[:2], f"{len(self.bases) - 2} more")
            found = f"{' = '.join(names)} (KS {self.distance:.3f}{sure})"
        elif self.nearest:
            found = f"no named base (nearest {self.nearest}, KS {self.distance:.2f})"
        else:
            found = "no named base"
        return f"{self.name} ({count}): {found}; {self.looks}"


@dataclass(frozen=True)
class Layer:
    """Numbers of a block, in the order of the forward pass; None where there is nothing to measure."""

    name: str
    stream: float | None = None
    """Root mean square of its input."""
    cosine: float | None = None
    """Mean cosine between two tokens of its input."""
    rank: float | None = None
    """Participation ratio of the squared singular values of its input tokens, from 1 up to their number."""
    entropy: float | None = None
    """Entropy of attention, over ln N: 1 where it is uniform."""
    distance: float | None = None
    """Between query and key, weighted by attention, in tokens."""
    logits: float | None = None
    """Standard deviation of a row of attention logits, of the head where it is largest."""
    limit: float | None = None
    """sqrt(2 ln N): above it a row of normal logits concentrates on few keys."""
    gradient: float | None = None
    """Norm of the gradient of its parameters."""


@dataclass(frozen=True)
class Check:
    """Report of `check`: `print` shows a page; `findings` are empty for a sound model."""

    model: str
    """Class."""
    parameters: int
    images: str
    """Images that the measurement used, in words."""
    classes: int
    loss: float | None
    """Cross-entropy at the start; None where it is not finite."""
    chance: float
    """ln K, the loss of a model that gives every class the same probability."""
    step: float | None
    """Step of SGD that lowers the loss on the same batch; None where none of those tried does."""
    after: float | None
    """Loss after this step."""
    groups: tuple[Group, ...]
    layers: tuple[Layer, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    """Properties that are unusual by design."""
    unseen: tuple[str, ...]
    """Parts of the model that the check cannot see."""

    @property
    def sound(self) -> bool:
        """True where there is no warning."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """One line."""
        if self.sound:
            return f"{self.model}: sound at the start; no warnings"
        kinds = list(dict.fromkeys(one.key for one in self.findings))
        count = len(self.findings)
        return f"{self.model}: {count} warning{'s' if count > 1 else ''}: {', '.join(kinds)}"

    def __str__(self) -> str:
        """Return the page: verdict, warnings, start, numbers by layer, what was not seen."""
        lines = [*_wrap(self.verdict), *_wrap(self._loss(), "  "), ""]
        for number, one in enumerate(self.findings, 1):
            lines += _wrap(f"{number}. {one.key}: {one.where}: {one.what}", "   ")
            lines += _wrap(f"   usually helps: {one.mend}", "     ")
            lines += _wrap(f"   source: {one.source}", "     ")
        lines += [""] if self.findings else []
        lines += ["Start: nearest named base of each group (KS: Kolmogorov-Smirnov distance)"]
        for group in self.groups:
            lines += _wrap(f"  {group}", "    ")
        if self.layers:
            lines += ["", *self._table(), "", *self._plots()]
        for title, said in (("Notes", self.notes), ("Not seen", self.unseen)):
            if said:
                lines += ["", title]
                for line in said:
                    lines += _wrap(f"  {line}", "    ")
        return "\n".join(line.rstrip() for line in lines)

    def _loss(self) -> str:
        at = "not finite" if self.loss is None else f"{self.loss:.3f}"
        step = "" if self.step is None else f"; one step of SGD (learning rate {self.step:.2g}) gives {self.after:.3f}"
        return (
            f"{self.parameters / 1e6:.1f} M parameters, {self.images}. Loss {at}, ln {self.classes} = "
            f"{self.chance:.3f}{step}."
        )

    def _table(self) -> list[str]:
        lines = [
            "By layer: rms, cosine and rank of its input tokens; of attention entropy / ln N,",
            "distance in tokens and std of logits; norm of the gradient",
            f"{'':<20}{'rms':>8}{'cosine':>8}{'rank':>7}{'entropy':>9}{'distance':>10}{'logits':>8}{'gradient':>10}",
        ]
        for one in self.layers:
            name = one.name if len(one.name) <= 19 else "..." + one.name[-16:]
            cells = (one.stream, one.cosine, one.rank, one.entropy, one.distance, one.logits, one.gradient)
            widths = (8, 8, 7, 9, 10, 8, 10)
            lines.append(
                f"{name:<20}" + "".join(f"{_number(cell):>{width}}" for cell, width in zip(cells, widths, strict=True))
            )
        return lines

    def _plots(self) -> list[str]:
        lines = []
        for title, values in (
            ("rms of the stream", [one.stream for one in self.layers]),
            ("cosine of tokens", [one.cosine for one in self.layers]),
            ("entropy / ln N", [one.entropy for one in self.layers]),
            ("gradient", [one.gradient for one in self.layers]),
        ):
            if len(known := [value for value in values if value is not None]) > 1:
                low, high = min(known), max(known)
                lines.append(f"  {title:<22}{plot(values)}  {_number(low)} to {_number(high)}")
        return lines

    def _repr_html_(self) -> str:
        """Return the page for a notebook: verdict and warnings, the rest folded."""
        items = "".join(
            f"<li><b>{escape(one.key)}</b>: {escape(one.where)}: {escape(one.what)}<br>"
            f"Usually helps: {escape(one.mend)} ({escape(one.source)})</li>"
            for one in self.findings
        )
        head = f"<p><b>{escape(self.verdict)}</b></p><p>{escape(self._loss())}</p><ol>{items}</ol>"
        return f"{head}<details><summary>all numbers</summary><pre>{escape(str(self))}</pre></details>"


def plot(values: Sequence[float | None]) -> str:
    """Draw numbers as a row of blocks, from the smallest to the largest; a space where there is none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return " " * len(values)
    low, span = min(known), max(known) - min(known)

    def block(value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return " "
        return BLOCKS[min(len(BLOCKS) - 1, int((value - low) / span * len(BLOCKS))) if span else 0]

    return "".join(map(block, values))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _wrap(text: str, indent: str = "    ") -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
