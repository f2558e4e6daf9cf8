"""Attempts and epochs of a run: coordinator, collected answers, plan of the next attempt, a host's side, sides of a partition."""
