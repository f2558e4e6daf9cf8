"""The small worker: runs instances of stages, in a process of its own or (`local_run.py`) a whole topology in this one.

Must stay light: it may import `agiledart_dataflow`, `agiledart_transport` and what those may, no overlay, no cryptography before
it is needed, no pyarrow, no metrics server. Connectors do their I/O here (`connectors/`).
"""
