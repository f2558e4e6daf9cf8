"""A virtual world for the machines that the daemon runs: one process, one heap of events, a virtual clock, one seed.

Same seed, same scenario: the same run, event for event, which the digest of its trace shows. `world.World` runs any machine
with `step(event, now) → effects`; `network` delays, loses and cuts; `faults` crashes and pauses; `checkers` compare the whole
world with what must hold; `scenario` and `runner` draw a hostile run from a seed and judge it.

May import any core package and no driver; nothing imports it but tools and tests.
"""
