"""Cost of changing stages while rows flow: `python -m benchmarks.scale`."""
