"""A node is emptied on purpose: it gives away what it runs while rows flow, and leaves the ring, or stays in it without work."""
