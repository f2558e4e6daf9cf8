"""Fragments of state: replica nodes, replication, the fragment store, repair, rebuild, and the arithmetic of m + k. Imports
`wire`.
"""
