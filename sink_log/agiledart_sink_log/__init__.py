"""Sink logs on disk: segments of checksummed entries, written by an executor's sink and read by its agent.

`entries` is the format of a segment, `layout` the folder, `reopened_partition` the valid part after a crash. `log_writer` and
`partition_writer` append and trim, `log_reader` finds rows by offset, `row_form` is the schema and encoding of rows. Plain file
code without an event loop; may import the kernel and
`agiledart_dataflow.data.schema`. Used by the executor's connector and by the agent's server. Source: decision 0008.
"""
