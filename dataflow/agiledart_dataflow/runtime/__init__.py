"""Runtime of a stage: instances, inboxes, outboxes, channels, barriers, the ledger.

It is the top layer of the package, without I/O.
"""
