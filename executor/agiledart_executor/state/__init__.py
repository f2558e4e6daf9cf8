"""State by key that is larger than memory: stores on this node's disk, behind the interface of `agiledart_dataflow.state`.

This sub-package does I/O and may import `agiledart_dataflow` and the kernel.
"""
