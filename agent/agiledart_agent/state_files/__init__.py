"""Small files of an agent's state directory: written durably, read back, guarded against a second agent."""
