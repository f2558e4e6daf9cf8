"""The public facade."""
