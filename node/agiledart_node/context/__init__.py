"""Shared context of the parts of one node: settings, pending requests, clocks of peers."""
