"""Messages, commands, events, effects and response schemas of a node. Plain data, no behaviour."""
