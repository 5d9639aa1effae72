"""`gpuenv init`: scan a folder for requirements and write the project's files."""
