"""Ring membership across restarts: addresses of known nodes, links to them, and the monitor that rejoins after isolation."""
