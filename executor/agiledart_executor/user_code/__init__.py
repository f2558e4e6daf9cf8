"""Users' code in this process: unpacking a bundle, importing it, its parameters and connectors, a watchdog, its last words."""
