"""Figures from records, and from the attention maps kept beside them: `python -m analysis.figures`."""
