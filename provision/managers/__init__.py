"""The two ways to build an environment: venv and conda."""
