"""Reachability of nodes: rules about addresses and relays, without I/O."""
