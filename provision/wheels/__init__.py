"""Wheels for both managers: solving, locks, installing. uv does the work."""
