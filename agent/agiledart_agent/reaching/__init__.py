"""Process of py-libp2p beside the agent: neighbours on the local network, and the router's port."""
