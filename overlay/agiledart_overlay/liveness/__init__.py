"""Liveness of peers: probes, suspicion, incarnations, gossip. It imports tables, wire and state."""
