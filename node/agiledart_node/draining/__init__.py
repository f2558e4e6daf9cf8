"""Draining a node on purpose: other nodes take over what it runs while rows flow; then it leaves the ring, or stays without work."""
