"""Options of format("agiledart")."""

import pytest

from agiledart_kernel.errors import ConfigurationError
from pyspark_agiledart.reader_options import ReaderOptions, log_and_partition, offset_key, parse_options


def test_names_are_case_insensitive_and_values_are_texts() -> None:
    found = parse_options(
        {
            "SINK": "trips",
            "bootstrap": "pi1:9464, pi2:9464",
            "tokenfile": "/run/t",
            "MaxRowsPerBatch": "100",
            "maxBytesPerBatch": "64MiB",
            "failondataloss": "False",
            "waitMs": "0",
            "agentTimeout": "2m",
        }
    )
    assert found == ReaderOptions(
        "trips", ("pi1:9464", "pi2:9464"), "/run/t", "", "earliest", 100, 64 << 20, False, 0, 120.0
    )


def test_the_path_of_load_names_the_sink() -> None:
    assert parse_options({"path": "trips"}).sink == "trips"
    assert parse_options({"path": "other", "sink": "trips"}).sink == "trips"


def test_offsets_are_parsed_from_json_with_or_without_the_name() -> None:
    assert parse_options({"sink": "t", "startingOffsets": '{"t/0": 5, "1": 7}'}).starting == {"t/0": 5, "t/1": 7}
    assert parse_options({"sink": "t", "startingOffsets": "LATEST"}).starting == "latest"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({}, "needs the name"),
        ({"sink": "t", "maxRowPerBatch": "1"}, "no option maxRowPerBatch"),
        ({"sink": "t", "startingOffsets": '{"u/0": 5}'}, "startingOffsets"),
        ({"sink": "t", "startingOffsets": '{"t/0": -1}'}, "startingOffsets"),
        ({"sink": "t", "startingOffsets": "{"}, "startingOffsets"),
        ({"sink": "t", "startingOffsets": "[1]"}, "startingOffsets"),
        ({"sink": "t", "maxRowsPerBatch": "-1"}, "maxRowsPerBatch"),
        ({"sink": "t", "maxBytesPerBatch": "a lot"}, "maxBytesPerBatch"),
        ({"sink": "t", "failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"sink": "t", "waitMs": "60000"}, "waitMs"),
        ({"sink": "t", "agentTimeout": "long"}, "agentTimeout"),
        ({"sink": "t", "bootstrap": "pi1"}, "HOST:PORT"),
        ({"sink": "t", "tokenFile": "a", "identityFile": "b"}, "give only one"),
    ],
)
def test_a_mistake_is_named(option: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_options(option)


@pytest.mark.parametrize("name", ["token", "Token", "grant", "password"])
def test_a_secret_is_refused_and_not_echoed(name: str) -> None:
    with pytest.raises(ConfigurationError, match="tokenFile") as caught:
        parse_options({"sink": "t", name: "adart1verysecret"})
    assert "verysecret" not in str(caught.value)


def test_a_checkpoint_of_another_sink_is_refused() -> None:
    options = ReaderOptions("trips")
    assert log_and_partition(options.check_key(offset_key("trips", 3))) == ("trips", 3)
    with pytest.raises(ConfigurationError, match="another sink"):
        options.check_key("rides/0")
