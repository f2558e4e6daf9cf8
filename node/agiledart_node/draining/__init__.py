"""Draining a node on purpose: other nodes take over what it runs; then it leaves the ring, or stays without work."""
