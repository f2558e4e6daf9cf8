"""Provisioning: which machines to lease, extend and release, and when. Decisions only: no clock, no I/O, no provider.

Source: [Hochreiner 2017].
"""
