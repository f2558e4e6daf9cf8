"""`agiledart top`: samples of all agents, the figures between two samples, and the live table."""
