"""`agiledart top`: sampling all agents, figures of a moment, the live table. It imports the base of the command line only."""
