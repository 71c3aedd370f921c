"""One page of everything that the records of one or several studies say: `python -m analysis.report`."""
