"""Operators computed the slow and obvious way, from all rows at once; what the engine is compared with."""
