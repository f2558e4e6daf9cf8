"""Files with damaged bytes, of each format and dialect: no source ends for one, and each record is a row or is counted."""

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agiledart import Format, Loose
from agiledart_connectors.opening import open_source
from agiledart_dataflow.data.batch import as_rows
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import OperationFailed
from tests.properties.damage import TEXT, damaged
from tests.properties.test_decoders_fuzzed import SOAK_SECONDS, fuzz


class FuzzedRow(NamedTuple):
    """A row with a field of each kind."""

    at: datetime
    room: str | None
    celsius: float
    number: Annotated[int, Loose]


class GermanRow(NamedTuple):
    """The same as a German spreadsheet has it."""

    at: Annotated[datetime, Format("%d.%m.%Y %H:%M")]
    room: str
    celsius: float


_CSV = b'at,room,celsius,number\n2026-06-01 12:00:00,"attic\n""a""",1.5,7\n2026-06-01T12:00:00.1234567Z,NULL,-2e3,8.0\n'
_PLAIN = b"".join(b"2026-06-01 12:%02d:00,room,%d.5,7\n" % (minute, minute) for minute in range(60)) * 3
_GERMAN = 'Logger\nat;room;celsius\n01.06.2026 12:00;Küche;20,5\n02.06.2026 12:00;"a;b";-1\n'.encode("cp1252")
_JSON = b'{"at":"2026-06-01T12:00:00Z","room":null,"celsius":1,"number":"7"}\n'
_ARRAY = b'[\n  {"at": 1780315200, "room": "a,}", "celsius": 1.5, "number": 7},\n  {"celsius": [1]}\n]\n'
_SENML = b'[{"bn":"u:","bt":1.7e9,"n":"t","v":20.5},{"n":"h","v":5,"t":-5}]\n'

FILES: dict[str, tuple[str, Any, list[bytes], bool]] = {
    "csv": ("csv:{}", FuzzedRow, [_CSV], False),
    "csv columns": ("csv:{}", FuzzedRow, [_PLAIN, _CSV], True),
    "csv dicts": ("csv:{}?header=1", dict[str, Any], [_CSV], False),
    "csv german": (
        "csv:{}?delimiter=;&decimal=,&encoding=cp1252&skip=1&zone=Europe/Berlin",
        GermanRow,
        [_GERMAN],
        False,
    ),
    "csv utf-16": ("csv:{}?encoding=utf-16", FuzzedRow, [_CSV.decode().encode("utf-16")], False),
    "csv without quotes": ("csv:{}?quote=none&null=-", FuzzedRow, [_CSV], False),
    "jsonl": ("jsonl:{}", FuzzedRow, [_JSON * 3], False),
    "jsonl dicts": ("jsonl:{}", dict[str, Any], [_JSON * 3], False),
    "json documents": ("jsonl:{}", FuzzedRow, [_ARRAY, _JSON], False),
    "senml": ("jsonl:{}?format=senml", FuzzedRow, [_SENML], False),
    "lines": ("lines:{}?header=1", str, [_CSV], False),
    "lines cp1252": ("lines:{}?encoding=cp1252", str, [_GERMAN], False),
}
"""Name → URL of a source, type of its rows, samples, whether columns are asked for."""


_OF_THE_WHOLE_FILE = re.compile("should name the columns|packed|damaged")
"""Errors that are about a file, and not about a record of it."""


def read_all(url: str, row_type: Any, *, columns: bool, at_once: int) -> tuple[int, int, int]:
    """(rows, malformed records, records read) of a source, to its end."""
    reader = open_source(parse_connector(url), row_type, columns=columns)
    rows = malformed = lines = turns = 0
    is_over = False
    while not is_over:
        reading = reader.read(at_once, 0)
        rows += len(as_rows(reading.rows))
        malformed += sum(reading.malformed.values())
        lines += reading.lines
        is_over = reading.exhausted
        turns += 1
        assert turns < 10_000
    reader.close()
    return rows, malformed, lines


def file_test(name: str) -> Callable[..., None]:
    url, row_type, samples, columns = FILES[name]

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(damaged(samples, TEXT), st.integers(1, 50))
    def test(data: bytes, at_once: int) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "in"
            path.write_bytes(data)
            try:
                rows, malformed, lines = read_all(url.format(path), row_type, columns=columns, at_once=at_once)
            except OperationFailed as error:
                if not _OF_THE_WHOLE_FILE.search(str(error)):
                    raise
            else:
                assert rows + malformed == lines

    return test


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_read_and_counted(name: str) -> None:
    file_test(name)()


@pytest.mark.soak
@pytest.mark.timeout(2 * SOAK_SECONDS)
@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_read_and_counted_in_a_long_run(name: str) -> None:
    fuzz(file_test(name), SOAK_SECONDS)
