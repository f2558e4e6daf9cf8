"""Operators that remember rows: sliding windows, panes (hopping and tumbling windows), keyed user code, top.

Each takes rows in order of position and the mark up to which they are complete, and puts out rows in order of position.
`base.py` says what an operator must do; `program.py` builds them. May import the rest of `agiledart_dataflow` and the
kernel.
"""
