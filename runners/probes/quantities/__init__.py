"""Quantities that probes measure, one file each; a file is found by lying here."""
