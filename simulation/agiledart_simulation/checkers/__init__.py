"""Checkers of a whole world's invariants: functions that look at every node and return the violations that they find.

They know the truth (which nodes are up, what was promised) and only read. An empty list is a pass.
"""
