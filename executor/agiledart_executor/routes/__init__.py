"""Paths of rows to another executor: open circuits, their costs, the selection among them, and the drivers of all that."""
