"""HTTP, package indexes, partial reads of wheels, and the configuration of pip and uv."""
