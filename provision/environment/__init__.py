"""An environment on disk: place, transaction, state, registry, distributions, and the manager venv."""
