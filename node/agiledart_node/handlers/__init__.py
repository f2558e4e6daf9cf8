"""Tables of handlers: commands of users and messages of other nodes, each with the part of the node that handles it."""
