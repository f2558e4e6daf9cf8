"""A case: input, topology, commands in the README, and the lines that must come out."""
