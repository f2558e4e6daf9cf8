"""One module for each verb, or for a few that belong together.

Verbs use the base of the command line; only `main` imports them all.
"""
