"""Each option of a connector has a line that explains it."""

from agiledart_connectors.catalogue import SINKS, SOURCES
from agiledart_connectors.opening import PACING, sink_options
from agiledart_connectors.option_texts import OPTION_TEXTS, option_text


def test_each_option_of_the_catalogue_is_explained() -> None:
    of_sources = [("source", kind.name, option) for kind in SOURCES.values() for option in (*kind.options, *PACING)]
    of_sinks = [("sink", kind.name, option) for kind in SINKS.values() for option in sink_options(kind)]
    assert [place for place in (*of_sources, *of_sinks) if not option_text(*place)] == []


def test_the_text_of_a_kind_wins_over_that_of_all_kinds() -> None:
    assert option_text("sink", "sql", "key") == OPTION_TEXTS["sql", "key"] != OPTION_TEXTS["key"]
    assert option_text("source", "mqtts", "key") == OPTION_TEXTS["key"]
    assert option_text("source", "csv", "nothing") == ""


def test_no_text_is_of_an_unknown_option() -> None:
    kinds = [*SOURCES.values(), *SINKS.values()]
    known = {option for kind in kinds for option in (*kind.options, *sink_options(kind))} | set(PACING)
    assert [key for key in OPTION_TEXTS if (key if isinstance(key, str) else key[1]) not in known] == []
