"""Versioned records at a key: the responsible node, its copies, the client. It imports tables, wire and state."""
