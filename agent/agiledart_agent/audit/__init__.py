"""Audit of one agent: which requester asked for what, and whether it was permitted. Removed or altered lines are detected.

Public parts: `hash_chain.HashChain` (a bounded file whose lines are linked by hashes), `audit_trail.AuditTrail` (what
is written, and read), `audit_lines` (from a request to its line).
"""
