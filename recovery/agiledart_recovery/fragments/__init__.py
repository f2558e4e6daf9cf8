"""Where state lies and how it comes back: holders, saving, the shelf, repair, rebuilding, and the arithmetic of m + k.
Imports `wire`.
"""
