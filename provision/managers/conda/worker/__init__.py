"""The conda engine, py-rattler, as a program of its own; `__main__.py` is where it begins."""
