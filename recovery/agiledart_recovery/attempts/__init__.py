"""Epochs and lives of a run: coordinator, collected answers, plans of the next life, a host's side, sides of a partition."""
