"""Factory of the stores of steps that keep their state on disk."""

from pathlib import Path

from agiledart_dataflow.aggregation.make_operator import MakeStore
from agiledart_dataflow.state.entries import EntryCodec
from agiledart_dataflow.state.store import KeyedStore


def disk_stores(directory: Path) -> MakeStore:
    """Return a function that makes stores in files of a directory; SQLite is imported with the first store."""

    def make(step: str, codec: EntryCodec) -> KeyedStore:
        from agiledart_executor.state.sqlite_store import (
            SqliteStore,
        )  # SQLite takes 2 MB that most executors never need

        return SqliteStore(step, codec, directory)

    return make
