"""Words and progress for people at a terminal."""
