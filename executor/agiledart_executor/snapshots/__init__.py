"""Snapshots of large states, written while rows go on: the schedule of the encoding, and the files."""
