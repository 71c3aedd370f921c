"""Methods: what sets some parameters over a base; one file each, or a folder."""
