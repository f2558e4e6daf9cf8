"""Messages, commands, events, effects and bodies of a node, and nothing that acts."""
