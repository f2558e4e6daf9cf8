"""Strategies in a space of latencies: springs (SBON), MOPA with clusters, its exact form, and MOPA that measures candidates."""
