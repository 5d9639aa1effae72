"""What a project asks for: gpuenv.yaml, requirements files, pyproject.toml. Nothing of it is run."""
