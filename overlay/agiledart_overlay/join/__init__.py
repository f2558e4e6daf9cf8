"""Join: a node becomes a member through search, bootstrap, ring creation and arrival.

The package is the last layer below the machine, beside routing.
"""
