"""Path planning of the shuffle: choose the links of a packet where links lose some of the packets they get.

The package only decides: outcomes of attempts go in, the next link comes out. Policies are chosen by name
(`agiledart_shuffle.registry.policy_named`). Seeded, without I/O, clock or messages; it may import the kernel only.
"""
