"""Whole runs of a virtual world from a seed: scenarios, faults, campaigns, reports. Built on world and checkers."""
