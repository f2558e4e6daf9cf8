"""Counts of token uses: one record on the ring for each token. Imports `records` and `context`."""
