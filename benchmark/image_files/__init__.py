"""Image files: reading somebody else's, and the two forms in which a prepared dataset lies on the disk."""
