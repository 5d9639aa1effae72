"""gpuenv.yaml: its keys, and how gpuenv reads, caches and edits it."""
