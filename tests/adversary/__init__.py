"""What users' code and an admitted agent cannot do: each finding of an adversary as a probe, with a lawful twin that must work."""
