"""Rows between two nodes over lossy links: wires, circuits through relays, both ends of a channel, agents that plan."""
