"""Scribe: a tree for each topic, from the node that is responsible for its key to its subscribers.

`topic_trees` keeps parents and children, `topic_roots` the state at a root and its copies, `dissemination` the messages along a
tree; `bottleneck_remover` moves children away from a node that has too many. `scribe.Scribe` composes them for the overlay
machine. The package may import the ring and below.

Source: [Scribe]; the project's overlay specification §8.
"""
