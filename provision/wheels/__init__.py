"""Wheels for both managers: solving, locks, installing, bytecode. uv does the work."""
