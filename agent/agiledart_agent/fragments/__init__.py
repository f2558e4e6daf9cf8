"""Fragments of state on neighbours: sealed, cut, brought to replica nodes, kept for others, fetched, put together.

The node decides what goes where. `fragment_messages`, `erasure_code` and `fragment_file_store` are the lowest layer.
`fragment_server` and `fragment_client` are the two ends of the service `fragments`. `fragment_service` joins them.
"""
