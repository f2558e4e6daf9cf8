"""The streams that users write, and the synchronous machinery that runs them.

Users build a `Topology`; it becomes a `Specification` (data), which is planned into stages (`stages.py`) and compiled
to a `Program`, whose `Instance`s take batches and emit batches. Order by position (docs/decisions/0003) makes results
independent of timing and parallelism. Nothing here does I/O or reads a clock: drivers call `SourceInstance.poll` and
`Instance.work`.

May import `agiledart_kernel` only. Nothing is re-exported: the public names are in `agiledart`.
"""
