"""Where steps that keep their state on disk get their stores."""

from pathlib import Path

from agiledart_dataflow.aggregation.make_operator import MakeStore
from agiledart_dataflow.state.entries import EntryCodec
from agiledart_dataflow.state.store import KeyedStore


def disk_stores(directory: Path) -> MakeStore:
    """Makes stores in files in this directory; SQLite is imported when the first is made."""

    def make(step: str, codec: EntryCodec) -> KeyedStore:
        from agiledart_executor.state.sqlite_store import SqliteStore  # 2 MB that most executors never need

        return SqliteStore(step, codec, directory)

    return make
