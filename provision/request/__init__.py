"""Read options and gpuenv.yaml as a Request, a Target and PackageSources."""
