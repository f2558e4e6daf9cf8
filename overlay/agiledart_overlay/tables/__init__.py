"""Tables of Pastry: leaf set, routing table, neighbourhood, next hop, coordinates.

Pure values; the package imports the kernel only.
"""
