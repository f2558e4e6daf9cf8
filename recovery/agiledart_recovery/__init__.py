"""State that survives the loss of its node: attempts, epochs and fragments, without a central store and without a master.

A run's state lies on neighbouring nodes as m + k fragments; any m of them rebuild it. One small register on three voters says which
attempt and which epoch are current. The voter with the highest ballot coordinates. This package is protocol code without I/O:
`RecoveryMachine.step(event, now)` returns effects, and a driver carries them out. Sub-packages, bottom first: `wire` (messages),
`register` (the one value), `fragments` (where state lies and how it is rebuilt), `attempts` (epochs, roll-back and hosts).

May import `agiledart_kernel` and nothing else of AgileDart. Nothing is re-exported here. Read `docs/decisions/0016-recovery.md`
first, then `register/proposer.py`, `attempts/coordinator.py` and `attempts/participant.py`: their head comments are the protocol.
"""
