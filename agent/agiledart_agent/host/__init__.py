"""What an agent asks of its machine: capacity, addresses, supervision by systemd."""
