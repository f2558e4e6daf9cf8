"""Sink logs on disk: segments of checked entries, written by an executor's sink, read by its agent.

`entries` is the form of a segment, `layout` the folder, `recovery` what is good after a crash, `writer` appends and trims, `reader`
finds rows by offset, `rows` says what rows look like to strangers. Plain file code without an event loop; may import the kernel and
`agiledart_dataflow.data.schema`. Used by the executor's connector and by the agent's server. Source: decision 0008.
"""
