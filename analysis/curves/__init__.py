"""What happens inside a model while it trains, from the probes of its records: `python -m analysis.curves`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from analysis.curves import similarity
from analysis.curves.efficiency import sample_efficiency
from analysis.curves.gating import gating
from analysis.curves.layers import QUANTITIES, over_epochs
from analysis.curves.locality import locality
from analysis.figures import drawing
from analysis.figures.kept import NONE
from analysis.frame import Study
from analysis.text import one_line

NO_PROBES = "no record holds probes"


def drawings(baseline: str | None = None) -> drawing.Drawings:
    """By name: what draws figures, and why it may draw none."""
    why_none = dict.fromkeys(QUANTITIES, NO_PROBES) | {"impulse_mass": "no record holds probes of a target"}
    return {
        **{name: (partial(over_epochs, name=name), why) for name, why in why_none.items()},
        "gating": (gating, "no record holds probes of gates (ConViT has some)"),
        "locality": (locality, "no ConViT with several locality strengths or numbers of GPSA layers"),
        "sample_efficiency": (
            lambda study: sample_efficiency(study, baseline),
            "no dataset with several train sizes, of a method and its base",
        ),
        "cka_layers": (similarity.layers, NONE),
        "cka_epochs": (
            similarity.epochs,
            "no run with attention maps of three epochs (--keep-maps --maps-at EPOCH)",
        ),
        "cka_initializers": (
            similarity.initializers,
            "no two rows with attention maps at one seed (--keep-maps)",
        ),
    }


def without_probes(study: Study) -> list[str]:
    """A line for the cells of the table whose records hold no probes, where those of others do."""
    missing = [f"{row} ({column})" for (column, row), runs in study.cells.items() if not any(r.probes for r in runs)]
    probed = len(missing) < len(study.cells)
    return [one_line(f"without probes, so in no figure of them: {', '.join(missing)}")] if probed and missing else []


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    description = "Draw what attention, gates and representations do over epochs, from records, as PDF and PNG."
    return drawing.main("analysis.curves", description, drawings, arguments, without_probes)
