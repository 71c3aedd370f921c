"""Names that a file of your own imports: of a method, dataset, model family, metric, probe, table and their sisters.

CONTRIBUTING.md says what each implements. `plugins.pyi` lists all. A name is imported when it is first used: a
method needs torch and pydantic only.
"""

from vitinit import public

__all__, __getattr__ = public(__file__)
