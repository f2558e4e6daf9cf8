"""Behaviour of learning routes when links between emulated hosts lose packets, break, heal or become slow."""
