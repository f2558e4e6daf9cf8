"""Who asked this agent for what, and whether it was allowed: kept so that a removed or altered line shows.

Public parts: `hash_chain.HashChain` (a bounded file whose lines hang together by hashes), `book.AuditTrail` (what is written, and read),
`noting` (from a request to its line).
"""
