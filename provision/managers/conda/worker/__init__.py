"""The conda engine, py-rattler, as a separate program that starts in `__main__.py`."""
