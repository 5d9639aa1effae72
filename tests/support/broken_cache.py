"""A cache of uv in which every file is broken."""


def damage(cache):
    """Break every file that uv keeps: answers, pointers to wheels, and the wheels that it unpacked."""
    for path in cache.rglob("*"):
        if path.is_file() and path.suffix != ".lock":
            path.chmod(0o644)
            path.write_bytes(b"\0 broken")
