"""What runs beside ours, most of it in an environment of its own: plain loops, other engines, message carriers.

These modules import nothing of ours but `jobs` and each other.
"""
