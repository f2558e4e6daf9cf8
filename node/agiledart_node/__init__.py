"""The composed node: overlay, forming of applications and the answers to users' requests in one machine without I/O.

A driver (the daemon, or the simulator) feeds `agiledart_node.node.Node` with events and carries out its effects.
May import dataflow, overlay, placement and kernel; knows no socket, file or clock.
"""
