"""HTTP and package indexes, wheels read in parts, and the configuration of pip and uv."""
