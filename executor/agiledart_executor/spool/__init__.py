"""Rows on the disk of a source's node: rows that wait for a slower mesh, and rows that a restart may need again.

This sub-package may import the kernel, the dataflow core and the standard library. It holds only files; the policy is decided in
`agiledart_dataflow.runtime.intake`.
"""
