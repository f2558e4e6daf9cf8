"""Verbs for the saved state of applications: checkpoints, restore, recovery without lost voters."""
