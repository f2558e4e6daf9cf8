"""The agent's log: observations of the machines become events with a name, a level and fields."""
