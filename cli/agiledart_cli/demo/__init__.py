"""`agiledart demo`: a mesh on this machine, a live view of it, Spark beside it, a report at the end.

It may use the verbs and `top`.
"""
