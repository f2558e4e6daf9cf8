"""The way of a message to its key: forwarding, repair of the routing table. It imports the ring and below."""
