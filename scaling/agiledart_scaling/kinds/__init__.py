"""Kinds of change, one file each: a slow instance, uneven keys, full links, candidate nodes, quota.

The modules are pure; `one_pass` tries the kinds in order.
"""
