"""State that survives its node: lives, epochs and fragments, without a store and without a master.

A run's state lies on its neighbours as m + k fragments, any m of which rebuild it; one small register on three voters says which
life and which epoch count; whoever of the voters holds the highest ballot coordinates. Everything here is protocol code without
I/O: `RecoveryMachine.step(event, now)` returns effects, a driver carries them out. Rooms, bottom first: `wire` what is said,
`register` the one value, `fragments` where state lies and how it comes back, `lives` epochs, roll-back and hosts.

May import `agiledart_kernel` and nothing else of AgileDart. Nothing is re-exported here. Read `docs/decisions/0016-recovery.md`
first, then `register/proposer.py`, `lives/coordinator.py` and `lives/participant.py`: their head comments are the protocol.
"""
