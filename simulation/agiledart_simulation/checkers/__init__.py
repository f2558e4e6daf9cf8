"""What must hold of a whole world, as functions that look at every node and return the violations they find.

They know the truth (who is up, what was promised) and only read. An empty list is a pass.
"""
