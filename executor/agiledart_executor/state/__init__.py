"""State by key that is larger than memory: stores on this node's disk, behind `agiledart_dataflow.state`'s interface.

May import `agiledart_dataflow` and the kernel; does I/O.
"""
