"""Circuits: relaying links of other nodes to members, and finding relays for this node's own links."""
