"""Links: TLS 1.3 connections between nodes that have proven their identity and their permissions.

Agents and executors share this package. So it imports only the kernel, the standard library and, in the modules that an
executor never loads (`certificates`, `local_peer_verifier`, `sealing`, `agent_client`), `cryptography`. It handles frames and
grants, not the content of frames. This module re-exports nothing: import `connecting`, `listener`, `tls_contexts`,
`certificates`, `peer_verifier` or `local_peer_verifier`.
"""
