"""How a node becomes a member: searching, bootstrap, founding, arrival.

It is the last room below the machine, beside routing.
"""
