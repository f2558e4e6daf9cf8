"""Connectors as text: a written connector reads back equal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart import csv, taxi
from agiledart_dataflow.plan.connectors import Connector, parse_connector
from agiledart_kernel.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "connector"),
    [
        ("csv:trips.csv.gz?speed=60@pi2", Connector("csv", "trips.csv.gz", (("speed", "60"),), "pi2")),
        ("csv:/data/my trips.csv", Connector("csv", "/data/my trips.csv")),
        ("csv:a%3Fb%40c", Connector("csv", "a?b@c")),
        ("taxi:?seed=7&count=10", Connector("taxi", "", (("count", "10"), ("seed", "7")))),
        ("stdout:", Connector("stdout")),
        ("stdout", Connector("stdout")),
        ("mqtt://broker/rooms/+/t", Connector("mqtt", "//broker/rooms/+/t")),
        ("csv:C:x", Connector("csv", "C:x")),
    ],
)
def test_connector_texts_are_parsed(text: str, connector: Connector) -> None:
    assert parse_connector(text) == connector


@pytest.mark.parametrize("text", ["", ":", "trips.csv", "/data/x:y", "csv:a?", "csv:a?speed", "csv:a?x=1&x=2", "a b:c"])
def test_invalid_connector_texts_are_rejected(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"connector|option|question|twice"):
        parse_connector(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("trips.csv.gz", "csv:trips.csv.gz"),
        ("in/readings.jsonl", "jsonl:in/readings.jsonl"),
        ("all.parquet", "parquet:all.parquet"),
        ("../a.log?follow=1", "lines:../a.log?follow=1"),
    ],
)
def test_a_bare_file_path_suggests_the_connectors_that_read_it(text: str, meant: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        parse_connector(text)
    assert f"did you mean {meant} ?" in str(told.value)


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.sampled_from(["csv", "mqtt", "x-y"]), WORDS, st.dictionaries(WORDS.filter(bool), WORDS, max_size=3), WORDS)
def test_every_connector_survives_its_text(kind: str, path: str, options: dict[str, str], at: str) -> None:
    connector = Connector(kind, path, tuple(sorted(options.items())), at)
    assert parse_connector(connector.url()) == connector


def test_helper_functions_give_the_same_text() -> None:
    assert csv("a.csv", speed=60.0, at="pi2").url() == "csv:a.csv?speed=60@pi2"
    assert taxi(seed=1, count=5).url() == "taxi:?count=5&seed=1"
