"""Running instances: one instance, the host of all instances of a process, and what is measured of them."""
