"""What a run leaves: its record, the folder of records, attention maps beside it, tables for other programs."""
