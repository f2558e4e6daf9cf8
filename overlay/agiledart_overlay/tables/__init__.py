"""Pastry's tables and nothing else: leaf set, routing table, neighbourhood, next hop, coordinates.

Pure values; imports the kernel only.
"""
