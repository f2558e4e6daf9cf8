"""CSV that comes as payloads or over a connection: several records, quotes, headers, one bad line."""

import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart_connectors.codecs.decoder import decoded
from agiledart_connectors.codecs.decoder_options import decoder_options
from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.codecs.malformed_examples import MalformedExamples
from agiledart_connectors.opening import open_source
from agiledart_dataflow.plan.connectors import parse_connector
from tests.unit.connectors.reading import Taken


class Note(NamedTuple):
    """A row."""

    name: str
    v: float
    note: str


def rows_of(payload: bytes, form: str = "csv", options: str = "") -> tuple[list[Any], dict[str, int], tuple[str, ...]]:
    """(rows, malformed, examples) of one payload."""
    malformed: dict[str, int] = {}
    examples = MalformedExamples()
    decoder = open_decoder(form, Note, decoder_options(parse_connector(f"mqtt://broker/x{options}")))
    return decoded(decoder, [payload], 0, malformed, examples, lambda _: "x:"), malformed, examples.take()


def test_a_bad_line_of_a_payload_costs_itself_alone() -> None:
    rows, malformed, examples = rows_of(b'p2,2,x\np3,bad,y\n\np4,4,"a\nb"\np5,5\n')
    assert rows == [Note("p2", 2.0, "x"), Note("p4", 4.0, "a\nb")]
    assert malformed == {"number": 1, "columns": 1}
    assert [text.partition(" ")[0] for text in examples] == ["x:2", "x:6"]


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c"])
def test_only_line_feeds_end_lines(separator: str) -> None:
    assert rows_of(f"p1,1.5,two{separator}parts".encode())[0] == [Note("p1", 1.5, f"two{separator}parts")]


def test_a_payload_may_name_its_columns() -> None:
    assert rows_of(b"note,name,v\r\nx,p1,1\r\n")[0] == [Note("p1", 1.0, "x")]
    assert rows_of(b"note;v;name\nK\xfchl;1,5;p1", options="?delimiter=;&decimal=,&encoding=cp1252")[0] == [
        Note("p1", 1.5, "Kühl")
    ]


@pytest.mark.parametrize("form", ["json", "senml"])
def test_payloads_of_other_encodings_are_malformed_or_read(form: str) -> None:
    text = '[{"n":"ü","name":"ü","v":1,"note":"x"}]'
    assert rows_of(text.encode("cp1252"), form)[1]
    assert rows_of(text.encode("cp1252"), form, "?encoding=cp1252")[0] == [Note("ü", 1.0, "x")]


def test_a_bad_item_of_an_array_costs_itself_alone() -> None:
    rows, malformed, examples = rows_of(b'[{"name":"a","v":1,"note":""},{"name":"b","v":"x","note":""},7]', "json")
    assert (rows, malformed) == ([Note("a", 1.0, "")], {"type": 2})
    assert examples[0].startswith("x:[1] v: 'x' is no number")


def test_a_record_over_tcp_may_come_in_pieces(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = Taken(open_source(parse_connector(f"tcp:127.0.0.1:{server.getsockname()[1]}"), Note))
        taken.reader.read(10, 0)
        peer, _ = server.accept()
        with peer:
            peer.sendall(b'a,1,x\nb,2,"two\n')
            taken.until(lambda have: len(have.rows) == 1)
            peer.sendall(b'lines"\nc,3,"y"\nd,4,"never\ne,5,z\n')
        taken.until(lambda have: have.exhausted)
        assert taken.rows == [
            Note("a", 1.0, "x"),
            Note("b", 2.0, "two\nlines"),
            Note("c", 3.0, "y"),
            Note("e", 5.0, "z"),
        ]
        assert taken.malformed == {"columns": 1}
        taken.reader.close()
