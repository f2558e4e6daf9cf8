"""Which kind of change helps, one file each: a slow instance, uneven keys, thin links, room, quota.

Pure; `one_pass` asks them in order.
"""
