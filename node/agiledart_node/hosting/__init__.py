"""Hosting of applications: a node starts and watches their instances, and reports their end."""
