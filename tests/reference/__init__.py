"""Operators computed the slow and obvious way, from all rows at once; the reference for the engine."""
