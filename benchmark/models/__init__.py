"""Model families, built from their specs."""
