"""Scaling decisions: how many instances a stage should have, and which kind of change leads there.

The package only decides: measures of an interval go in, numbers of instances with their reasons come out. Policies are chosen by
name (`agiledart_scaling.registry.policy_named`); a user's package adds one by the entry point `agiledart.scaling`.
Deterministic, without I/O, clock or messages; it may import the kernel only.
"""
