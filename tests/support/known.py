"""gpuenv's own rows, read once."""

from provision import profiles

KNOWN = profiles.load()
