"""Rows on the disk of a source's node: that wait because the mesh is slower than they come, or may be needed once more.

May import the kernel, the dataflow core and the standard library. What policy there is, is decided in
`agiledart_dataflow.runtime.intake`; here are only files.
"""
