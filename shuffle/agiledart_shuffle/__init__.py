"""Shuffle paths: which way a packet takes over links that lose some of what they are given.

Pure decisions and nothing else: outcomes of attempts go in, the next link comes out. Policies are chosen by name
(`agiledart_shuffle.registry.policy_named`). Seeded, without I/O, clock or messages; may import the kernel only.
"""
