"""Options and gpuenv.yaml as a Request, a Target and Sources."""
