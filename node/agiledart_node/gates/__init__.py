"""Leased machines: the lease of this node, and the gates beside agents."""
