"""Accuracy over epochs and attention maps at initialisation, from records: `python -m analysis.figures`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis import command
from analysis.frame import LOCAL, ROWS, Study, load
from analysis.text import count, one_line
from benchmark.record import RunRecord
from initializers.errors import VitinitError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


# Okabe and Ito's palette, told apart with every common colour blindness; with four dashes, 28 distinct lines.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")


def style(study: Study) -> dict[str, dict[str, str]]:
    """Colour and dash by row label, the same in every figure: by place, so that a missing row shifts no other."""
    names = [*ROWS, *(row for row in study.rows if row not in ROWS)]
    return {
        name: {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]} for i, name in enumerate(names)
    }


def accuracy(study: Study) -> Figure:
    """Test top-1 over epochs: a panel a dataset, a line a row; mean over seeds, with two or more a band of one std.

    Raises:
        VitinitError: no finished run.
    """
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    study.require_runs()
    columns = [column for column in study.columns if column in set(study.runs["column"])]
    across = min(3, len(columns))
    down = -(-len(columns) // across)
    figure, grid = plt.subplots(
        down, across, figsize=(3.4 * across + 1.7, 3.1 * down + 0.3), squeeze=False, layout="constrained"
    )
    for axes in grid.flat[len(columns) :]:
        axes.set_axis_off()
    handles = {}
    curves = dict(list(study.epochs.groupby(["row", "column"])[["epoch", "test_top1"]]))
    for axes, column in zip(grid.flat, columns, strict=False):
        runs = study.runs[study.runs["column"] == column]
        for row, looks in style(study).items():
            if (row, column) not in curves:
                continue
            top1 = curves[row, column].groupby("epoch")["test_top1"].agg(["mean", "std"])
            # The standard deviation of one seed is NaN, which draws no band; a line through one epoch needs a marker.
            marker = "o" if len(top1) == 1 else None
            (handles[_safe(row)],) = axes.plot(top1.index, top1["mean"], marker=marker, linewidth=1.6, **looks)
            low, high = top1["mean"] - top1["std"], top1["mean"] + top1["std"]
            axes.fill_between(top1.index, low, high, color=looks["color"], alpha=0.2, linewidth=0)
        n, epochs = _span(runs.groupby("row").size()), _span(runs["epochs"])
        axes.set_title(f"{_safe(column)}: n={n}, {epochs} epoch{'' if epochs == '1' else 's'}")
        axes.set(xlabel="epoch", ylabel="test top-1 (%)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    names = [_safe(row) for row in style(study) if _safe(row) in handles]
    figure.legend([handles[name] for name in names], names, loc="outside right center", frameon=False, handlelength=3)
    figure.suptitle("Test accuracy over epochs: mean over seeds, band ± one standard deviation")
    return figure


def attention_maps(study: Study) -> Figure | None:
    """First-layer attention at initialisation by offset: a line of maps a row label, a map a head; None without maps.

    The first dataset with maps, and of each row its first seed there. One logarithmic scale for all maps: uniform
    attention and a sharp impulse differ by two orders of magnitude.
    """
    import matplotlib.pyplot as plt
    import numpy as np
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    records = _first_maps(study)
    if not records:
        return None
    maps = {row: [np.array(head) for head in record.init.offset_maps or []] for row, record in records.items()}
    values = np.concatenate([head.ravel() for heads in maps.values() for head in heads])
    high = max(float(values.max()), 1e-6)
    # Three decades at most, so that one vanishing entry does not flatten the rest.
    low = max(float(values.min()) * 0.999, high * 1e-3)
    columns = max(len(heads) for heads in maps.values())
    figure, grid = plt.subplots(
        len(maps), columns, figsize=(1.25 * columns + 2.4, 1.3 * len(maps) + 1), squeeze=False, layout="constrained"
    )
    lowest = {head: line for line, heads in enumerate(maps.values()) for head in range(len(heads))}
    for line, (row, heads) in enumerate(maps.items()):
        for head, axes in enumerate(grid[line]):
            if head >= len(heads):
                axes.set_axis_off()
                continue
            r = len(heads[head]) // 2
            edges = (-r - 0.5, r + 0.5, r + 0.5, -r - 0.5)
            image = axes.imshow(heads[head].clip(low), norm=LogNorm(low, high), cmap="viridis", extent=edges)
            for width, color in ((2.5, "black"), (1.2, "white")):  # seen on every colour of the map
                axes.add_patch(Rectangle((-0.5, -0.5), 1, 1, fill=False, edgecolor=color, linewidth=width))
            axes.set(xticks=sorted({-r, 0, r}), yticks=sorted({-r, 0, r}))
            axes.tick_params(labelsize=7, labelbottom=lowest[head] == line, labelleft=head == 0)
            if line == 0 or head >= max(len(other) for other in list(maps.values())[:line]):
                axes.set_title(f"head {head + 1}", fontsize=9)
        color = style(study)[row]["color"]
        grid[line][0].set_ylabel(_safe(row), rotation=0, ha="right", va="center", color=color, fontweight="bold")
    first = next(iter(records.values()))
    figure.supxlabel("offset of the key from the query: columns across, rows down; square: the query", fontsize=8)
    seeds = sorted({record.spec.seed for record in records.values()})
    figure.suptitle(
        f"First-layer attention at initialisation\n{_safe(study.column[first.run_id])}, "
        f"seed {' or '.join(map(str, seeds))}, "
        f"mean over {count(first.init.images, 'image')}",
        fontsize=10,
    )
    figure.colorbar(image, ax=grid, label="attention mass (log scale)", shrink=0.6, aspect=30)
    return figure


def _first_maps(study: Study) -> dict[str, RunRecord]:
    """By row, in the order of the table: the first seed's record with maps, on the first dataset that has any."""
    with_maps = [r for r in study.contents.done.values() if r.init.offset_maps]
    for column in study.columns:
        here = [record for record in with_maps if study.column[record.run_id] == column]
        if here:
            here.sort(key=lambda record: record.spec.seed)
            return {row: next(r for r in here if r.row == row) for row in study.rows if any(r.row == row for r in here)}
    return {}


def _safe(label: str) -> str:
    """A label that matplotlib does not take for mathematics."""
    return one_line(label, 60).replace("$", r"\$")


def _span(values: pd.Series[int]) -> str:
    low, high = values.min(), values.max()
    return str(low) if low == high else f"{low} to {high}"


def save(figure: Figure, path: Path) -> None:
    """Write `<path>.pdf` and `<path>.png`, without dates: the same records give the same bytes.

    Raises:
        VitinitError: a file cannot be written.
    """
    # The layout is computed once, for both files.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    try:
        figure.savefig(f"{path}.pdf", metadata={"CreationDate": None})
        figure.savefig(f"{path}.png", dpi=150, metadata={"Software": None})
    except OSError as error:
        raise VitinitError(f"cannot write {path}: {error.strerror or error}") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = command.parser("analysis.figures", "Draw figures from records as PDF and PNG.", LOCAL / "figures")
    args = parser.parse_args(arguments)

    def run() -> None:
        study = load(args.results, args.study)
        study.require_runs()
        for line in study.summary():
            print(line)
        import matplotlib as mpl

        mpl.use("agg")
        # TrueType in PDF: text stays text.
        mpl.rcParams.update({"pdf.fonttype": 42, "font.size": 9})
        mpl.rcParams.update({"figure.constrained_layout.w_pad": 0.08, "figure.constrained_layout.h_pad": 0.08})
        out = command.folder(args.out)
        for name, draw in (("accuracy", accuracy), ("attention_maps", attention_maps)):
            figure = draw(study)
            if figure is None:
                print(f"{name}: not drawn, no record holds attention maps")
                continue
            save(figure, out / name)
            print(f"wrote {out / name}.pdf and .png")

    return command.guarded(run)


if __name__ == "__main__":
    sys.exit(main())
