"""The vocabulary that all layers share: ids, time, messages, frames, grants, errors, limits.

Imports nothing of AgileDart and does no I/O. It knows neither Pastry nor streams.
"""
