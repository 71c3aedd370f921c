"""What probes measure of a model, one file each; a file is found by lying here."""
