"""Agreed ring: neighbours, leases, admissions, range transfers, lease expiry, merging of two rings.

It imports liveness and below.
"""
