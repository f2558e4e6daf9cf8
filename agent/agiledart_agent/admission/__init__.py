"""Who may come in at this agent's port, and how long it stays: uses of tokens. It imports identity."""
