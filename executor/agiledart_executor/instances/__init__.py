"""Running instances: one instance, the host of all instances of a process, and their measurements."""
