"""Verbs about the state of applications: what is safe of it, and what outlives a run."""
