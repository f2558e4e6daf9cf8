"""Encodings and packings of files: read as they are, and what is of another encoding is malformed, line for line."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_connectors.codecs.encodings import Transcoder, has_bad_bytes, text_of
from agiledart_connectors.opening import open_source
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed


class Site(NamedTuple):
    """A row."""

    site: str
    value: float


def read(url: str, row_type: Any = Site, *, columns: bool = False) -> tuple[list[Any], dict[str, int], list[str]]:
    """(rows, malformed, notes) of a source."""
    reader = open_source(parse_connector(url), row_type, columns=columns)
    rows: list[Any] = []
    malformed: dict[str, int] = {}
    notes: list[str] = []
    while True:
        reading = reader.read(100, 0)
        rows += reading.rows if isinstance(reading.rows, list) else reading.rows.rows()
        notes += reading.notes
        for reason, count in reading.malformed.items():
            malformed[reason] = malformed.get(reason, 0) + count
        if reading.exhausted:
            reader.close()
            return rows, malformed, notes


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("copies", [1, 300])
def test_bytes_of_another_encoding_make_their_line_malformed(columns: bool, copies: int, tmp_path: Path) -> None:
    path = tmp_path / "sites.csv"
    path.write_bytes(b"K\xfchl,1\nK\xf6hl,3\nKahl,5\n" * copies)
    rows, malformed, notes = read(f"csv:{path}", columns=columns)
    assert (rows, malformed) == ([Site("Kahl", 5.0)] * copies, {"encoding": 2 * copies})
    assert any("sites.csv:1 is no UTF-8: b'K\\xfchl,1'" in note for note in notes)
    rows, malformed, _ = read(f"csv:{path}?encoding=cp1252", columns=columns)
    assert (rows, malformed) == ([Site("Kühl", 1.0), Site("Köhl", 3.0), Site("Kahl", 5.0)] * copies, {})


@pytest.mark.parametrize(("kind", "row_type"), [("lines", str), ("csv", str), ("jsonl", dict[str, Any])])
def test_other_formats_count_them_too(kind: str, row_type: Any, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b'{"a":"x"}\n{"a":"\xfc"}\n')
    rows, malformed, _ = read(f"{kind}:{path}", row_type)
    assert (len(rows), sum(malformed.values())) == (1, 1)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "cp1252", "latin-1"])
def test_other_encodings_are_read(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes('Kühl,1\r\n"a\n,b",2\r\n'.encode(encoding))
    rows, malformed, _ = read(f"csv:{path}?encoding={encoding}")
    assert (rows, malformed) == ([Site("Kühl", 1.0), Site("a\n,b", 2.0)], {})


def test_utf16_is_recognised_and_an_unknown_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes("a,1\n".encode("utf-16"))
    assert any("encoding=utf-16" in note for note in read(f"csv:{path}")[2])
    for name in ("utf-99", "base64", "rot13"):
        with pytest.raises(ConfigurationError, match="there is no encoding"):
            read(f"csv:{path}?encoding={name}")


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(["utf-16", "utf-8", "shift_jis", "cp1252"]),
    st.integers(1, 5),
)
def test_texts_in_pieces_are_the_whole_text(text: str, encoding: str, size: int) -> None:
    data = text.removeprefix("\ufeff").encode(encoding, "ignore")
    transcoder = Transcoder(encoding)
    pieces = [transcoder.convert(data[at : at + size]) for at in range(0, len(data), size)]
    whole = b"".join([*pieces, transcoder.convert(b"", is_end=True)]).decode()
    assert whole.removeprefix("\ufeff") == data.decode(encoding)


@given(st.binary(), st.sampled_from(["utf-16", "utf-16-le", "cp1252", "shift_jis", "utf-8"]))
def test_any_bytes_become_texts_or_visibly_none(data: bytes, encoding: str) -> None:
    converted = Transcoder(encoding).convert(data, is_end=True)
    text, is_doubtful = text_of(converted)
    assert has_bad_bytes(text) == is_doubtful
    try:
        expected = data.decode(encoding)
    except UnicodeError:
        assert is_doubtful
    else:
        assert (text.removeprefix("\ufeff"), is_doubtful) == (expected.removeprefix("\ufeff"), False)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_are_known_by_their_first_bytes(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(pack(b"a,1\nb,2\n"))
    assert read(f"csv:{path}")[0] == [Site("a", 1.0), Site("b", 2.0)]
    path.write_bytes(pack(b"a,1\n" * 50_000)[:-9])
    with pytest.raises(OperationFailed, match=r"cut short|damaged"):
        read(f"csv:{path}")


def test_zstandard_is_read_where_pyarrow_is(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "in.zst"
    with pyarrow.CompressedOutputStream(str(path), "zstd") as file:
        file.write(b"a,1\nb,2\n")
    assert read(f"csv:{path}")[0] == [Site("a", 1.0), Site("b", 2.0)]


@pytest.mark.parametrize(
    ("magic", "name"), [(b"PK\x03\x04", "zip"), (b"7z\xbc\xaf\x27\x1c", "7-Zip"), (b"\x04\x22\x4d\x18", "LZ4")]
)
def test_other_packings_are_refused_by_name(magic: bytes, name: str, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(magic + b"\0" * 20)
    with pytest.raises(OperationFailed, match=f"is packed by {name}, which cannot be read"):
        read(f"csv:{path}")
