"""Frames between instances, over links between processes or as calls within one process."""
