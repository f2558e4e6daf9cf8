"""What runs a stage: instances, inboxes, outboxes, channels, barriers, the ledger.

It is the top room of the package, without I/O.
"""
