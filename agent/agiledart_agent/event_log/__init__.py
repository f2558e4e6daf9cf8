"""Observations of the machines become log events."""
