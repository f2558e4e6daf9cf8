"""What it costs that stages change while rows flow: `python -m benchmarks.scale`."""
