"""Verbs of `agiledart provision`: leases and releases, off line."""
