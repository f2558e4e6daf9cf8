"""Virtual world for the machines that the daemon runs: one process, one heap of events, a virtual clock, one seed.

Same seed, same scenario: the same run, event for event, as the digest of its trace shows. `world` runs any machine with
`step(event, now) → effects`; its network delays, loses and partitions, its faults crash and pause. `checkers` compare the whole
world with the invariants. `runs` draw a hostile run from a seed and check it.

May import any core package and no driver; nothing imports it but tools and tests.
"""
