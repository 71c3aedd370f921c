"""Cluster jobs from picklable calls. Knows nothing of this benchmark."""
