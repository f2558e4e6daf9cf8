"""State by key: what a step remembers of each key, kept in memory or beyond it behind one interface.

`store.py` is the interface and the store in memory; `entries.py` the typed, versioned bytes of an entry. A store on disk
does I/O and lives with the executor. May import the rest of `agiledart_dataflow` and the kernel.
"""
