"""The operating system: processes, signals, users, and safe access to files."""
