"""User commands and queries that pass through a node: status of an application, taps, stops, checkpoints.

The package imports records and the context.
"""
