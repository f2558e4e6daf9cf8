"""Event log: observations of the machines become log events."""
