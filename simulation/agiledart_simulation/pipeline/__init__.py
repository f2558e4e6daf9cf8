"""A small pipeline on virtual disks, whose hosts run the recovery machine: two sources, two stages with state, one sink.

It is what executors and fragment stores are to the real one: rows, barriers, elements and logs, small enough that a checker can say
exactly what a run without failures would have committed. Bottom first: disk, frames, parties, engine, host. May import kernel,
recovery and `world`.
"""
