"""Verbs about who may and who did: the audit, secrets of connectors."""
