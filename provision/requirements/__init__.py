"""Requirements files and a project's folder as demands. No code of either is run."""
