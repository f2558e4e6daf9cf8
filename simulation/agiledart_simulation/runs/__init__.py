"""Whole runs of a virtual world from a seed: scenarios, hostile acts, campaigns, reports. It stands on world and checkers."""
