"""The name under which `python -m gpuenv` starts the command line; the code is the package `provision`."""
