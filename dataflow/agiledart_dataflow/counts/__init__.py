"""Counts of a run: records at each step, latencies of a sample. The package imports data only, so that all others may count."""
