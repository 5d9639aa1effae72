"""gpuenv: GPU Python environments that match the driver, the GPUs and cuDNN, and are proved."""

__version__ = "0.2.0"
