"""State on neighbours, as bytes: sealed, cut, brought to holders, kept for others, fetched, put together.

What goes where is the node's business. `wire`, `erasure` and `fragment_shelf` stand below, `server` and `fragment_links` are the
two ends of the service `fragments`, `fragment_desk` joins them.
"""
