"""Files in `deploy/`: files that other programs read, checked by those programs and against the agent."""
