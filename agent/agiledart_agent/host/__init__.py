"""Machine of an agent: capacity, addresses, supervision by systemd."""
