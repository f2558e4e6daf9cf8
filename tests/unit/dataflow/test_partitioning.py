"""Keys to groups to instances: the same everywhere, and equal keys together."""

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import pytest

from agiledart_dataflow.data.partitioning import KeyRouter, canonical, key_group
from agiledart_dataflow.state.owner_table import groups_of, owners_by_key
from agiledart_kernel.limits import KEY_GROUPS


class Route(NamedTuple):
    """A composite key."""

    start: tuple[int, int]
    end: tuple[int, int]


@dataclass(frozen=True)
class Room:
    """A dataclass key."""

    house: str
    number: int


class Kind(str, Enum):  # noqa: UP042  a StrEnum formats as its text, this one does not
    """Equals its text."""

    TAXI = "taxi"


class Side(Enum):
    """Equals nothing else."""

    LEFT = 1
    RIGHT = 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0, -0.0),
        ((1, 2.0), (1.0, 2)),
        (Route((1, 2), (3, 4)), ((1, 2), (3, 4))),
        (2**70, float(2**70)),
        (1, Decimal("1.00")),
        (0.5, Decimal("0.50")),
        (10**400, Decimal("1e400")),
        (float("inf"), Decimal("Infinity")),
        (Decimal("0.1"), Decimal("0.10")),
        ("taxi", Kind.TAXI),
        (datetime(2013, 1, 1, 12, tzinfo=UTC), datetime(2013, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_equal_keys_have_one_group(one: Any, other: Any) -> None:
    assert one == other
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", 1),
        (("a", "b"), ("a,b",)),
        (("ab", ""), ("a", "b")),
        (b"a", "a"),
        (None, "n"),
        ((1,), 1),
        (1.5, 1),
        (Side.LEFT, Side.RIGHT),
        (Side.LEFT, 1),
        (0.1, Decimal("0.1")),
        (Decimal("0." + 40 * "1"), Decimal("0." + 39 * "1" + "2")),
        (datetime(2013, 1, 1, 12, tzinfo=UTC), datetime(2013, 1, 1, 12)),  # noqa: DTZ001  that is the point
        (date(2013, 1, 1), datetime(2013, 1, 1)),  # noqa: DTZ001  as above
    ],
)
def test_different_keys_have_different_texts(one: Any, other: Any) -> None:
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize("key", [[1], {"a": 1}, {1}, float("nan"), Decimal("NaN"), object(), (1, [2])])
def test_invalid_keys_are_refused(key: Any) -> None:
    with pytest.raises(TypeError, match="key"):
        key_group(key)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5, 7, 127, 128])
def test_every_group_has_one_instance_and_ranges_are_contiguous(parallelism: int) -> None:
    owners = owners_by_key(parallelism)
    owned = [group for index in range(parallelism) for group in groups_of(owners, index)]
    assert owned == list(range(KEY_GROUPS))
    for index in range(parallelism):
        groups = groups_of(owners, index)
        assert KEY_GROUPS // parallelism <= len(groups) <= -(-KEY_GROUPS // parallelism)


def test_groups_do_not_change_between_versions() -> None:
    keys = [
        "",
        "Manhattan",
        0,
        -7,
        1.5,
        ("a", 1),
        Room("x", 1),
        datetime.fromisoformat("2013-01-01"),
        None,
        b"\x00",
        "\ud800",
    ]
    assert [key_group(key) for key in keys] == [key_group(key) for key in keys]
    assert key_group("Manhattan") == 122
    assert key_group(((156, 162), (157, 161))) == 92


def test_groups_do_not_depend_on_the_hash_seed() -> None:
    code = "from agiledart_dataflow.data.partitioning import key_group; print([key_group(k) for k in ('a', ('b', 1), None)])"
    answers = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        for seed in ("1", "2")
    ]
    assert answers[0].stdout == answers[1].stdout != ""


def test_the_router_evicts_keys_to_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agiledart_dataflow.data.partitioning._REMEMBERED", 10)
    router = KeyRouter(owners_by_key(4))
    targets = [router[i] for i in range(100)]
    assert len(router) <= 10
    assert [router[i] for i in range(100)] == targets
