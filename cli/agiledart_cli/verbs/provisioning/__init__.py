"""Verbs of `agiledart provision`: what to lease and release, off line."""
