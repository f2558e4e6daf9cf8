"""A small pipeline on virtual disks, whose hosts run the recovery machine: two sources, two stages with state, one sink.

It stands for executors and fragment stores: rows, barriers, snapshots and logs. It is small enough for a checker to say exactly
what a run without failures would have committed. Bottom first: disk, messages, instances, engine, host. May import kernel,
recovery and `world`.
"""
