"""Large states that are saved while rows go on: when some more is encoded, and how that comes to the disk."""
