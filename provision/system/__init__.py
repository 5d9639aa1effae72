"""The operating system: processes, signals, users, and files read and written safely."""
