"""Every figure and curve of three committed studies and of strange records: what it says and shows, as `drawn.txt` has.

`python -m tests.analysis.test_drawn` writes that file anew.
"""

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pytest

from tests.analysis.synthetic_records import done, failed, several, write
from tests.records import REFERENCE
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures import style
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import load

EXPECTED = Path(__file__).with_name("drawn.txt")
TO_BASELINE = ("differences", "forest", "sample_efficiency")
COMMITTED = ("small", "standard", "length")
"""Studies that are whole: a record that is added to one changes its lines."""


def strange(root):
    """Labels that are markup, unlike numbers of epochs and layers, and a probe that the schema does not name."""
    probed = next(run for run in load([REFERENCE], "small").contents.done.values() if run.row == "ConViT")
    heads, layers = range(probed.spec.model.heads), range(probed.spec.model.depth)
    more = {"<b>by head</b>": [[float(head + layer) for head in heads] for layer in layers], "flat": [0.0, 1.0, 2.0]}
    write(
        root, probed.model_copy(update={"probes": [each.model_copy(update={"more": more}) for each in probed.probes]})
    )
    write(root, done("ConViT", (10.0,), depth=5, seed=1), done("Trunc normal", (0.0, 20.0)), failed("Imp.-5"))
    for size, base in ((500, [(20.0,), (0.0,)]), (1000, [(20.0,)])):
        several(root, {"Mimetic": [(30.0,), (33.0,)]}, label="$x_{^\\ <b>|漢", train_size=size)
        several(root, {"Kaiming uniform": base}, train_size=size)
    return load([root], "small")


def texts(figure):
    """Titles, names of axes, ticks that are words, and legends."""
    yield from (figure.get_suptitle(), figure.get_supylabel())
    for axes in figure.axes:
        yield from (axes.get_title(), axes.get_xlabel(), axes.get_ylabel())
        yield from (text.get_text() for text in (*axes.get_xticklabels(), *axes.get_yticklabels()))
    for legend in figure.legends:
        yield from (text.get_text() for text in legend.get_texts())


def drawn():
    """A line for each figure: its file, the digest of its data, and its texts."""
    lines = []
    with tempfile.TemporaryDirectory() as name, mpl.rc_context():
        style.set_defaults()
        studies = [*(load([REFERENCE], name) for name in COMMITTED), strange(Path(name))]
        for study in studies:
            for drawing in [*FIGURES.entries(), *CURVES.entries()]:
                for baseline in (None, study.rows[-1])[: 1 + (drawing.name in TO_BASELINE)]:
                    for file, grid in drawing.figures(replace(study, baseline=baseline)).items():
                        words = [
                            re.sub(r"\s+", " ", text) for text in texts(grid.figure) if re.search(r"[^\W\d]", text)
                        ]
                        where = f"{study.name} over {baseline or 'own bases'} | {file}"
                        lines.append(f"{where} | {style.digest(grid.data)[:12]} | {' / '.join(dict.fromkeys(words))}\n")
    return "".join(lines)


@pytest.mark.long
def test_every_figure_says_and_shows_what_it_did():
    found = drawn()
    assert found == EXPECTED.read_text(encoding="utf-8")
    missing = {drawing.name for drawing in (*FIGURES.entries(), *CURVES.entries())} - set(
        re.findall(r"\| (\w+)", found)
    )
    assert not missing, "add a study that has them"


if __name__ == "__main__":
    EXPECTED.write_text(drawn(), encoding="utf-8")
