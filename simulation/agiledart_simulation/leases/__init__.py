"""Model of clouds, leased hosts and their work, and the checks on leases. It imports `world` and provisioning only."""
