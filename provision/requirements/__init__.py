"""What requirement files and the folder of a project require. No code of either is run."""
