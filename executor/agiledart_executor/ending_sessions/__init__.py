"""Ending of the sessions that brokers keep for ended runs, in a process of its own."""
