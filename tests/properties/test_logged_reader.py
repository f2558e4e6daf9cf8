"""A source with a log hands every row out once, in order, whatever is read ahead, saved, cut, and killed in between."""

import tempfile
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_dataflow.data.batch import as_rows
from agiledart_dataflow.plan.connectors import Reading
from agiledart_executor.checkpointing.source_rewind import FastForwardedReader
from agiledart_executor.spool.logged_reader import LoggedReader
from agiledart_executor.spool.source_log import SourceLog

MIB = 1 << 20
LENGTH = 60


class Row(NamedTuple):
    at: int


class Lines:
    """A file of rows, each with its number."""

    stamps = False

    def __init__(self) -> None:
        self.stands = 0

    def read(self, max_rows: int, _wall_ns: int) -> Reading:
        begin, self.stands = self.stands, min(LENGTH, self.stands + max_rows)
        return Reading([Row(n) for n in range(begin, self.stands)], self.stands - begin, {}, self.stands == LENGTH)

    def close(self) -> None: ...


class SeekableLines(Lines):
    """One that knows where it stands."""

    def position(self) -> bytes:
        return msgspec.msgpack.encode(self.stands)

    def seek(self, position: bytes) -> None:
        self.stands = msgspec.msgpack.decode(position)


def opened(folder: Path, *, seekable: bool, fresh: bool) -> LoggedReader:
    log = SourceLog(folder, 8 * MIB, fresh=fresh)
    lines = SeekableLines() if seekable else Lines()

    def resume(reader: Any, passed: int) -> FastForwardedReader:
        return FastForwardedReader(reader, passed, lambda: 0)

    return LoggedReader(lines, log, Row, reads_ahead=True, resume=resume)


STEPS = st.lists(
    st.sampled_from(["read", "ahead", "ahead", "save", "commit", "kill", "kill before any epoch"]), max_size=40
)


@settings(max_examples=50)
@given(STEPS, st.booleans(), st.integers(1, 7))
def test_every_row_is_read_once(steps: list[str], seekable: bool, most: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "log"
        reader = opened(folder, seekable=seekable, fresh=True)
        out: list[int] = []
        saved: tuple[bytes, int] | None = None
        is_first_process = True
        for step in [*steps, *["read"] * (2 * LENGTH)]:
            if step == "read":
                out += [row.at for row in as_rows(reader.read(most, 0).rows)]
                assert out == list(range(len(out)))
            elif step == "ahead":
                reader.read_ahead(most, 0)
                assert not is_first_process or reader.lines_ahead == cast(Lines, reader._reader).stands - len(out)
            elif step == "save":
                saved = reader.position(), len(out)
            elif step == "commit" and saved is not None:
                reader.trim(saved[0])
            elif step.startswith("kill") and (saved is not None or step != "kill"):
                if saved is None or step != "kill":
                    if saved is not None:
                        continue  # committed rows are the beginning then
                    out = []
                reader.close()
                is_first_process = False
                reader = opened(folder, seekable=seekable, fresh=False)
                if saved is not None:
                    reader.seek(saved[0])
                    out = out[: saved[1]]
        assert out == list(range(LENGTH))
        assert reader.lines_ahead == 0
        reader.close()
