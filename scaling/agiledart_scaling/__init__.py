"""How many instances a stage should have, and which kind of change leads there.

Pure decisions and nothing else: measures of an interval go in, wanted numbers with their reasons come out. Policies are chosen by
name (`agiledart_scaling.registry.policy_named`); a package of a user's own adds one by the entry point `agiledart.scaling`.
Deterministic, without I/O, clock or messages; may import the kernel only.
"""
