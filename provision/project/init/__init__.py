"""`gpuenv init`: scans a folder for requirements and writes the project's files."""
