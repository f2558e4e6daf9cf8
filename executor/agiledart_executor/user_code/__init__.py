"""User code in this process: unpacking and importing a bundle, its parameters and connectors, a watchdog, its crash report."""
