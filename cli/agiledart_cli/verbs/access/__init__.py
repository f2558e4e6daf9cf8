"""Verbs for access control: audit, join tokens, memberships, secrets of connectors."""
