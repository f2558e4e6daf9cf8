"""Formats with names: rows are filled by name, and what is wrong with one that is not is said with field and value."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart import Alias, ConfigurationError, ReadTime
from agiledart_connectors.codecs.decoder import decoded
from agiledart_connectors.codecs.formats import FORMATS, open_decoder
from agiledart_connectors.codecs.json_decoder import JsonDecoder
from agiledart_connectors.codecs.malformed_examples import MalformedError, MalformedExamples
from agiledart_connectors.codecs.row_shape import naive_time
from agiledart_connectors.codecs.senml_decoder import SenmlDecoder

AT = datetime.fromisoformat("2017-07-14 02:40:00")


class Place(NamedTuple):
    """Where."""

    lat: float
    lon: float = 0.0


class Reading(NamedTuple):
    """A row with all that JSON may bring."""

    room: str
    at: datetime
    celsius: Annotated[float, Alias("temperature", "t")]
    where: Place | None
    count: int | None  # type: ignore[assignment]  # hides the method of tuples, as users' fields may
    read_at: ReadTime
    tags: list[str] = []
    places: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Plain:
    """A dataclass."""

    room: str
    at: datetime
    notes: list[str] = field(default_factory=list)


def rows(text: str, kind: Any = Reading, form: str = "json") -> list[Any]:
    return open_decoder(form, kind).rows(text.encode(), 9)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ('{"room":"a","at":"2017-07-14T02:40:00Z","celsius":1}', Reading("a", AT, 1.0, None, None, ReadTime(9))),
        ('{"room":"a","at":"2017-07-14 04:40:00+02:00","t":1}', Reading("a", AT, 1.0, None, None, ReadTime(9))),
        (
            '{"tags":["x"],"at":1500000000,"temperature":1.5,"room":"é","where":{"lat":2},"count":3,"more":[{}]}',
            Reading("é", AT, 1.5, Place(2.0), 3, ReadTime(9), ["x"]),
        ),
        (
            ' {"room":"a","at":1500000000000,"t":1,"where":null,"places":[{"lat":1,"lon":2}]}\n',
            Reading("a", AT, 1.0, None, None, ReadTime(9), [], (Place(1.0, 2.0),)),
        ),
    ],
)
def test_objects_fill_rows_by_name(text: str, row: Reading) -> None:
    assert rows(text) == [row]
    assert rows(f"[{text},{text}]") == [row, row]
    assert open_decoder("json", Reading).lines(b"\n".join([text.strip().encode()] * 3), 9) == [row] * 3
    packed = msgspec.msgpack.encode(msgspec.json.decode(text))
    assert open_decoder("msgpack", Reading).rows(packed, 9) == [row]
    assert [type(value) for value in rows(text)[0]] == [type(value) for value in row]


def test_dataclasses_scalars_and_mappings_are_decoded() -> None:
    assert rows('{"room":"a","at":0}', Plain) == [Plain("a", datetime.fromisoformat("1970-01-01 00:00:00"))]
    first, second = rows('[{"room":"a","at":0},{"room":"b","at":0,"notes":["x"]}]', Plain)
    assert (first.notes, second.notes) == ([], ["x"])
    assert rows("1.5", float) == [1.5]
    assert rows('{"a":1.5}', dict[str, float]) == [{"a": 1.5}]
    with pytest.raises(ConfigurationError, match="which of these"):
        open_decoder("json", list[Place | Reading])


@pytest.mark.parametrize(
    ("text", "reason", "told"),
    [
        ('{"room":"a","at":0}', "field", "celsius is missing (also as temperature, t)"),
        (
            '{"Room":"a","at":0,"t":1}',
            "field",
            'room is missing (there is Room, at, t); is it Room? Annotated[…, Alias("Room")]',
        ),
        ('{"room":1,"at":0,"t":1}', "type", "room: 1 is no text"),
        ('{"room":"a","at":"now","t":1}', "time", "at: 'now' is no time like"),
        ('{"room":"a","at":1e300,"t":1}', "time", "at: 1e+300 is no time"),
        ('{"room":"a","at":true,"t":1}', "type", "at: True is no time"),
        ('{"room":"a","at":0,"t":"24.0"}', "type", "t: '24.0' is no number"),
        ('{"room":"a","at":0,"t":1,"where":{"lat":"x"}}', "type", "where.lat: 'x' is no number"),
        ('{"room":"a","at":0,"t":1,"tags":["x",1]}', "type", "tags[1]: 1 is no text"),
        ('{"room":"a","at":0,"t":1,"count":1.5}', "type", "count: 1.5 is no int"),
        ('{"room":"a","at":0,"t":1e999}', "type", "t: "),
        ('{"room":"a"', "form", 'is no JSON (Input data was truncated): \'{"room":"a"\''),
        ("", "form", "is no JSON"),
        ("[1]", "type", "is no object with names"),
        ("[1", "type", "is no object with names"),
        ('"\udcff"', "type", "is no object with names"),
    ],
)
def test_a_wrong_value_is_reported_with_its_field(text: str, reason: str, told: str) -> None:
    with pytest.raises(MalformedError) as error:
        open_decoder("json", Reading).rows(text.encode("utf-8", "surrogateescape"), 0)
    assert error.value.reason == reason
    assert told in error.value.text
    assert open_decoder("json", Reading).lines(text.encode("utf-8", "surrogateescape") or b"x", 0) is None


@given(st.datetimes(datetime(2001, 1, 1), datetime(2200, 1, 1)))  # noqa: DTZ001  rows have no zones
def test_numbers_of_every_unit_are_times(at: datetime) -> None:
    since = (at - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001
    assert naive_time(since) == naive_time(since * 1_000) == at
    assert naive_time(since // 1_000) == at.replace(microsecond=at.microsecond // 1_000 * 1_000)
    assert naive_time(since // 1_000_000) == at.replace(microsecond=0)
    assert naive_time(since / 1e6) == datetime.fromtimestamp(since / 1e6, UTC).replace(tzinfo=None)


def test_senml_packs_are_resolved() -> None:
    class Measured(NamedTuple):
        name: str
        time: datetime
        value: float
        unit: str | None = None

    pack = (
        '[{"bn":"urn:dev:ow:10e2073a01080063:","bt":1.320067464e+09,"bu":"%RH","v":20},'
        '{"u":"lon","v":24.30621},{"t":60,"v":20.3},{"n":"x","t":120,"bv":1,"v":2,"u":"Cel"},{"n":"y","vs":"text"}]'
    )
    found: list[Any] = []
    with pytest.raises(MalformedError, match="value is missing"):
        rows(pack, Measured, "senml")
    found = rows(pack.replace(',{"n":"y","vs":"text"}', ""), Measured, "senml")
    device = "urn:dev:ow:10e2073a01080063:"
    assert [(one.name, one.value, one.unit) for one in found] == [
        (device, 20, "%RH"), (device, 24.30621, "lon"), (device, 20.3, "%RH"), (device + "x", 3, "Cel")]  # fmt: skip
    assert found[3].time - found[0].time == timedelta(seconds=120)
    (now,) = SenmlDecoder(Measured, lambda: 1.5e9).rows(b'[{"n":"a","t":-5,"v":1}]', 0)
    assert now.time == AT - timedelta(seconds=5)
    for bad in ("{}", "[1]", '[{"n":"a","v":1,"x_":1}]', '[{"n":1,"v":1}]', '[{"n":"a","v":"1","bv":2}]'):
        with pytest.raises(MalformedError):
            rows(bad, Measured, "senml")


def test_texts_and_bytes_are_decoded() -> None:
    class Text(NamedTuple):
        line: str
        read_at: ReadTime

    assert rows("a,b", Text, "text") == [Text("a,b", ReadTime(9))]
    assert rows("a,b", bytes, "raw") == [b"a,b"]
    assert rows("é", str, "text") == ["é"]
    with pytest.raises(ConfigurationError, match="one field of str"):
        open_decoder("text", Place)
    with pytest.raises(ConfigurationError, match=r"no format 'jsno'\. Did you mean json\?"):
        open_decoder("jsno", Place)


@pytest.mark.parametrize("form", sorted(FORMATS))
@given(st.one_of(st.binary(max_size=200), st.text('[]{}",:0123456789.eEn-ulattrfs\\u', max_size=80).map(str.encode)))
def test_no_payload_harms_a_decoder(form: str, payload: bytes) -> None:
    kind = {"raw": bytes, "text": str}.get(form, Place)
    malformed: dict[str, int] = {}
    examples = MalformedExamples()
    payloads = [payload, b"[" * 5_000, b'{"lat":1,"x":' + b"[" * 100_000, payload * 3]
    found = decoded(open_decoder(form, kind), payloads, 0, malformed, examples, lambda index: f"m{index}")
    assert all(isinstance(one, kind) for one in found)
    assert all(len(text) < 400 for text in examples.take())


def test_an_out_of_range_number_is_malformed_only_in_a_selected_field() -> None:
    class Counted(NamedTuple):
        number: int

    decoder = JsonDecoder(Counted)
    large, largest = "9" * 40, (1 << 64) - 1
    with pytest.raises(MalformedError, match="does not fit 64 bits"):
        decoder.rows(f'{{"number": {large}}}'.encode(), 0)
    assert decoder.lines(f'{{"number": 1}}\n{{"number": {large}}}'.encode(), 0) is None, "looked at one by one"
    assert decoder.rows(f'{{"number": {largest}, "serial": {large}}}'.encode(), 0) == [(largest,)]
    with pytest.raises(MalformedError, match="does not fit 64 bits"):
        JsonDecoder(dict[str, Any]).rows(f'{{"a": [{{"b": {large}}}]}}'.encode(), 0)
