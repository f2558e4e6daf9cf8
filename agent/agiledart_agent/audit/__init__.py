"""Who asked this agent for what, and whether it was allowed: kept so that a removed or altered line shows.

Public parts: `hash_chain.Chain` (a bounded file whose lines hang together by hashes), `book.AuditBook` (what is written, and read),
`noting` (from a request to its line).
"""
