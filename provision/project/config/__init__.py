"""gpuenv.yaml: which keys it has, how it is read, kept and edited."""
