"""Programs compared with ours, most in an environment of their own: plain loops, other engines, message carriers.

These modules import nothing of ours but `jobs` and each other.
"""
