"""Metrics for Prometheus: their list, the sources of their figures, the server.

It reads the other sub-packages, and none of them reads it.
"""
