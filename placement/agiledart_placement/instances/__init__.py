"""Instances of the papers' experiments, generated from a seed, as networks and topologies of `agiledart place`."""
