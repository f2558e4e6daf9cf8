"""The agreed ring: neighbours, leases, admitting and joining, yielding, lapses, merging of two rings.

It imports liveness and below.
"""
