"""Every figure from records.

A figure, or a few that belong together, is one file of this folder; each function that draws is decorated with
`@FIGURES.add`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vitinit.analysis.command import blaming
from vitinit.analysis.figures.style import Panels
from vitinit.analysis.frame import Study
from vitinit.initializers.plugins import Registry

Draw = Callable[..., dict[str, Panels]]
"""Figures of a study by the name of their files; none where its records do not allow any."""


@dataclass(frozen=True)
class Drawing:
    """Figures that are drawn together."""

    name: str
    """Name for `--figure`."""
    why_none: str
    """Reason why there may be none, in a few words."""
    draw: Draw
    caption: str = ""
    """Reading help, in a sentence."""

    def figures(self, study: Study) -> dict[str, Panels]:
        """Draw those of a study with a finished run, by the name of their files.

        Raises:
            BrokenFile: its file has an error.
        """
        with blaming(f"figure {self.name}"):
            return self.draw(study)


class Drawings(Registry[Drawing]):
    """Registry of the figures that the files of one folder draw."""

    def add(self, name: str, why_none: str, caption: str = "") -> Callable[[Draw], Draw]:
        """Register a function that draws figures: see the fields of `Drawing`."""
        return lambda draw: self.put(Drawing(name, why_none, draw, caption)).draw


FIGURES = Drawings("figure", ("vitinit.analysis.figures",))
