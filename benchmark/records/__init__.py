"""Output of runs: records, their folder, attention maps beside them, tables for other programs."""
