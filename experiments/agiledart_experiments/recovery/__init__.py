"""Experiments on the cost and speed of recovery: the papers' figures on emulated links, and real processes that are killed."""
