"""Model families, one file each: its part of the spec, its presets, its arithmetic, how it is built."""
