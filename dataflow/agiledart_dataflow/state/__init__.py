"""State by key: what a step remembers of each key, kept in memory or beyond it, and taken out by key group in one way.

`key_groups.py` is the protocol; `plain_codec.py` the typed, versioned bytes. `store.py` and `entries.py` hold the state of keyed
operators, in memory; a store on disk does I/O and lives with the executor. `key_group_indexed_state.py` and `open_windows.py` serve operators with
dictionaries of their own. May import `data`, `counts`, `user_code` and the kernel.
"""
