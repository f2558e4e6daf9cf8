"""Versioned records at a key: the responsible node, its copies, the client. The package imports tables, wire and state."""
