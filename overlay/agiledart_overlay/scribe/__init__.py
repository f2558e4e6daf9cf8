"""Scribe: a tree for each topic, from the node that is responsible for its key to those that subscribed.

`tree` keeps parents and children, `roots` what a root knows and leaves behind, `casting` what travels along a tree, and
`bottleneck` moves children away from a node that has too many. `scribe.Scribe` composes them for the overlay machine. May
import the kernel and the overlay's shared view.

Source: [Scribe]; the project's overlay specification §8.
"""
