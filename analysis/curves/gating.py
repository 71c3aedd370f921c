"""Gates of each GPSA layer over epochs, as in Figure 6 of arXiv 2103.10697."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.style import file_part, finish, not_in, palette, size, ticks
from vitinit.analysis.frame import Study

if TYPE_CHECKING:
    from seaborn import FacetGrid


@CURVES.add(
    "gating",
    "no record holds probes of gates (ConViT has some)",
    caption="A gate that falls lets its head look at content in place of position.",
    place=6,
)
def gating(study: Study) -> dict[str, FacetGrid]:
    """Draw a figure per ConViT and dataset, of the first seed: a panel per GPSA layer, a line per head, their mean."""
    import seaborn as sns

    data = study.probes[study.probes["quantity"] == "gating"]
    figures: dict[str, FacetGrid] = {}
    for (column, row), its in data.groupby(["column", "row"], sort=False):
        seed = its["seed"].min()
        one = its[its["seed"] == seed].assign(head=its["head"].map("head {}".format)).reset_index(drop=True)
        heads, layers = list(dict.fromkeys(one["head"])), sorted(set(one["layer"]))
        grid = sns.relplot(
            one,
            kind="line",
            x="epoch",
            y="value",
            hue="head",
            style="head",
            errorbar=None,
            hue_order=heads,
            palette=palette(heads),
            facet_kws={"legend_out": False},
            **{"col": "layer", "col_order": layers, **size(len(layers), 1.9, 5)},
        )
        for layer, axes in grid.axes_dict.items():
            mean = one[one["layer"] == layer].groupby("epoch")["value"].mean()
            axes.plot(mean.index, mean, color="black", linewidth=1.6, linestyle=":")
        ticks(grid, one["epoch"])
        grid.set(ylim=(0, 1))
        grid.set_axis_labels("epoch", "gate")
        title = "Share of positional attention: sigmoid of each head's gate"
        note = f"{row}, {column}, seed {seed} (of {its['seed'].nunique()}); dotted: mean of the heads"
        titles = {layer: f"layer {layer}" for layer in layers}
        figures[not_in(figures, f"gating-{file_part(str(column), str(row))}")] = finish(grid, title, note, titles)
    return figures
