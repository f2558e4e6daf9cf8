"""Operators that keep state between rows: keyed user code, joins, patterns, distinct and rankings; and stateless chains.

Each operator takes rows in order of position with the watermark up to which they are complete, and puts out rows in
order of position. `base.py` defines the interface of an operator. The package may import the rest of
`agiledart_dataflow` and the kernel.
"""
