"""Every figure of what happens inside a model while it trains.

One, or a few that belong together, is one file of this folder; each function that draws is decorated with
`@CURVES.add`.
"""

from vitinit.analysis.figures.registry import Drawings

CURVES = Drawings("figure", ("vitinit.analysis.curves",))
