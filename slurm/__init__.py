"""How a picklable call becomes cluster jobs. Knows nothing of this benchmark."""
