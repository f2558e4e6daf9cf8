"""Sink `log:`: rows in a log on this node's disk, which other programs read by offset."""
