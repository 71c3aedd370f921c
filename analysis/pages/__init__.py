"""One Markdown page for each study, and an index, written from the records by templates that people edit."""
