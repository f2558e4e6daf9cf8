"""Worker process: runs instances of stages, in a process of its own or (`local_run.py`) a whole topology in this one.

The package must stay light. It may import `agiledart_dataflow`, `agiledart_transport` and their dependencies. It imports no
overlay, no pyarrow and no metrics server, and no cryptography before it is needed. Connectors do their I/O in this process.
"""
