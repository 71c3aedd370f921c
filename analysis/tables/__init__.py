"""Tables from records: `python -m analysis.tables`. A table is one file here, decorated with `@TABLES.add`."""
