"""gpuenv: GPU Python environments that match the driver, the GPUs and cuDNN, and are proved."""

__version__ = "0.1.0"
