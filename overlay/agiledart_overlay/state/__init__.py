"""Shared state of the parts of an overlay node: view, agreement, peer book, distances. It imports tables and wire."""
