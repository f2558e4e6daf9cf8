"""What Prometheus scrapes: the list of metrics, where their figures come from, the server.

It reads the other rooms and is read by none.
"""
