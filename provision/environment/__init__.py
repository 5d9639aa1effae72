"""An environment on disk: its folder, changes of it, and its state files."""
