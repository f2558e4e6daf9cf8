"""`agiledart demo`: a mesh on this machine, a live view of it, Spark beside it, a report at the end.

This package may import the verbs and `top`.
"""
