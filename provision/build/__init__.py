"""build: an Environment from a Lock, all or nothing."""
