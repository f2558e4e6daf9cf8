"""What a run counts: records at each step, latencies of a sample. It imports data only, so that every other room may count."""
