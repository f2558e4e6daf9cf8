"""Attacks of users' code and of admitted agents: each finding of an adversary as a probe, with a lawful twin that must work."""
