"""Identity of this agent: its key, grants and tokens, their files, the name of its host.

It imports kernel and transport only.
"""
