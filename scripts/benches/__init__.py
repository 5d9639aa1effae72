"""Measure the rows of scripts/bench.py, one module for each kind of row."""
