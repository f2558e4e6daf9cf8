"""Bans of keys and tokens: taken from admins, spread to all nodes, enforced. Imports `records` and `context`."""
