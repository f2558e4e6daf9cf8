"""A wrong keyword or a misspelt verb is answered with the line and what was meant; calls that are right are not touched."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart_dataflow.expressions.expression import col, lit
from agiledart_dataflow.graph.topology import Topology
from agiledart_kernel.errors import TopologyError


class Row(NamedTuple):
    fare: int


def stream() -> Any:
    return Topology("t").source("rows", [Row(1)], rows=Row)


def loose(value: Any) -> Any:
    """A call that type checkers do not look at."""
    return value


HERE = Path(__file__).name


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s: s.mapp(len), "a Stream has no verb 'mapp': did you mean .map(…)?"),
        (
            lambda s: s.filter(len, nam="x"),
            "filter() has no argument 'nam': did you mean name? It takes function, name",
        ),
        (lambda s: s.key_by(len, returns=int).running_count(), "running_count() needs name. It takes name, on_error"),
        (lambda s: s.sink("a", "b", "c"), "sink() takes 2 arguments without a name, and here are 3."),
        (lambda s: s.filter(len, "a", name="b"), "filter() is given 'name' twice."),
        (lambda s: s.key_by(len, returns=int).windw(1), "a KeyedStream has no verb 'windw': did you mean .window(…)?"),
        (lambda s: s.where(col("fare") > 1, nme="x"), "where() has no argument 'nme': did you mean name?"),
        (lambda s: loose(Topology("t")).souce("x"), "a Topology has no verb 'souce': did you mean .source(…)?"),
        (
            lambda s: loose(Topology("t")).source("x", [Row(1)], row=Row),
            "source() has no argument 'row': did you mean rows?",
        ),
        (lambda s: loose(Topology)(nam="t"), "Topology() has no argument 'nam': did you mean name?"),
        (lambda s: s.with_columns(step_name="x"), "a step is named by name='x' in every verb"),
    ],
)
def test_a_wrong_call_suggests_the_intended_one_with_the_line(call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(TopologyError) as error:
        call(stream())
    assert str(error.value).startswith(HERE + ":")
    assert said in str(error.value)


def test_a_type_error_inside_user_code_is_not_explained_away() -> None:
    def broken(stream: object) -> None:
        stream.union(*5, name="x")  # type: ignore[attr-defined]

    with pytest.raises(TypeError):
        broken(stream())


def test_streams_support_hasattr() -> None:
    rows = stream()
    assert not hasattr(rows, "mapp")
    assert getattr(rows, "mapp", 7) == 7
    assert copy.copy(rows)._rows is rows._rows


def test_every_verb_names_its_step_by_the_same_word() -> None:
    rows = (
        stream().where(col("fare") > 1, name="some").with_columns(more=lit(1), name="wider").select("fare", name="one")
    )
    assert [step.name for step in rows._rows.graph.steps] == ["rows", "some", "wider", "one"]
    named = stream().select(name=col("fare"))
    assert [step.name for step in named._rows.graph.steps] == ["rows", "select"]
    assert named._rows.type._fields == ("name",)
