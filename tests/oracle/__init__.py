"""Slow, obvious references that the shipped queries are compared with. They import nothing of AgileDart."""
