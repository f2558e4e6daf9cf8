"""What becomes of applications when their hosts die: the recovery machine, joined with hosting, records and the ring.

`founding` gives a run its register, `bringing_back` carries out a new life on one host, `recovering` is the machine's driver inside
the node. It imports hosting and below.
"""
