"""State by key: the memory of a step about each key, in memory or on disk, saved and restored by key group in one way.

`key_groups.py` is the protocol; `plain_codec.py` the typed, versioned bytes. `store.py` and `entries.py` hold the state of keyed
operators in memory; a store on disk does I/O and belongs to the executor. `key_group_indexed_state.py` and `open_windows.py` serve
operators with dictionaries of their own. The package may import `data`, `counts`, `user_code` and the kernel.
"""
