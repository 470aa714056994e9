"""Measures tgcore beside numpy and torch, in one run: `python -m benchmarks`."""
