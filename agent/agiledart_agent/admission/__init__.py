"""Admission at this agent's port: which keys may join by tokens, and for how long. It imports identity."""
