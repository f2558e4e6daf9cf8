"""What an agent keeps of the ring across restarts, and the monitor that rejoins after isolation."""
