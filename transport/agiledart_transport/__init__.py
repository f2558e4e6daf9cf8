"""Links: TLS 1.3 connections between nodes that have proven who they are and what they may do.

Agents and executors share this package, so it imports only the kernel, the standard library and, in the modules that an
executor never loads (`certificates`, `local_judge`), `cryptography`. It knows frames and grants, not what is in the
frames. Nothing is re-exported here: import `links`, `contexts`, `certificates`, `judge` or `local_judge`.
"""
