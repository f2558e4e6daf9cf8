"""Conversations with other nodes: requests, answers, deadlines, and the settings of a node. It imports the wire only."""
