"""Who this agent is: its key, grants and tokens, the files they lie in, the name of its host.

It imports kernel and transport only.
"""
