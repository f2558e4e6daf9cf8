"""Route of a message to its key: forwarding, and repair of the routing table. It imports the ring and below."""
