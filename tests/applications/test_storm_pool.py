"""Storm's examples are exact, against plain loops, at every parallelism and under hostile schedules."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from agiledart import Topology, collect, records
from agiledart.testing import run_local
from agiledart_examples import storm_pool
from agiledart_examples.generated_streams import generate
from agiledart_examples.storm_pool import (
    Age,
    BusiestPages,
    Gender,
    Greeting,
    Person,
    Request,
    Text,
    Whole,
    WindowTotal,
    WordCount,
)
from tests.data import data_path

SCHEDULES = [(1, None), (2, 11), (4, 12)]


def texts(stream: str, count: int = 400, seed: int = 1) -> list[Text]:
    """Rows of a generated stream of texts."""
    parts = [line.split(",", 2) for line in generate(stream, seed, count)]
    return [Text(int(number), int(at_ms), text) for number, at_ms, text in parts]


def wholes(count: int, interval_ms: int = 100) -> list[Whole]:
    """Rows of the generated stream of whole numbers."""
    lines = generate("integers", 1, count, interval_ms=interval_ms)
    return [Whole(*(int(part) for part in line.split(","))) for line in lines]


def running_counts(words: list[str]) -> list[WordCount]:
    """The count of each word so far."""
    so_far: Counter[str] = Counter()
    rows = []
    for word in words:
        so_far[word] += 1
        rows.append(WordCount(word, so_far[word]))
    return rows


def exclaimed(rows: list[Text]) -> list[Any]:
    return [row._replace(text=row.text + "!!!!!!") for row in rows]


def words_counted(rows: list[Text]) -> list[Any]:
    return running_counts([word for row in rows for word in row.text.split(" ")])


def prefixes_counted(rows: list[Text]) -> list[Any]:
    return running_counts([row.text[: end + 1] for row in rows for end in range(len(row.text))])


def greeted(rows: list[Text]) -> list[Any]:
    return [Greeting(f"Hello lambda:{row.text.split('-')[0]}:so cool!", 999) for row in rows]


def distinct(rows: list[Text]) -> list[Any]:
    return list(dict.fromkeys(Request(*row.text.split()) for row in rows))


def busiest(rows: list[Text]) -> list[Any]:
    """The ten greatest counts at each change; of equal ones that which was renewed last comes first."""
    visits: Counter[str] = Counter()
    renewed: dict[str, int] = {}
    results: list[BusiestPages] = []
    for number, row in enumerate(rows):
        page = row.text.split()[0]
        visits[page] += 1
        renewed[page] = number
        best = sorted(visits, key=lambda name: (-visits[name], -renewed[name]))[:10]
        top = BusiestPages(best, [visits[name] for name in best])
        if not results or top != results[-1]:
            results.append(top)
    return results


@pytest.mark.parametrize(("parallelism", "seed"), SCHEDULES)
@pytest.mark.parametrize(
    ("builder", "stream", "expected"),
    [
        (storm_pool.exclamation, "words", exclaimed),
        (storm_pool.word_count, "sentences", words_counted),
        (storm_pool.word_count_4, "sentences", words_counted),
        (storm_pool.prefix, "words", prefixes_counted),
        (storm_pool.lambda_topology, "uuids", greeted),
        (storm_pool.remove_duplicates, "requests", distinct),
        (storm_pool.top_k, "requests", busiest),
    ],
)
def test_texts_are_exact(
    builder: Callable[..., Topology],
    stream: str,
    expected: Callable[[list[Text]], list[Any]],
    parallelism: int,
    seed: int | None,
) -> None:
    rows = texts(stream)
    result = run_local(builder(records(rows), collect), parallelism=parallelism, schedule_seed=seed)
    assert result == expected(rows)


@pytest.mark.parametrize(("parallelism", "seed"), SCHEDULES)
def test_sliding_window_is_exact(parallelism: int, seed: int | None) -> None:
    rows = wholes(205)
    result: Any = run_local(
        storm_pool.sliding_window(records(rows), collect), parallelism=parallelism, schedule_seed=seed
    )
    sums = [sum(row.value for row in rows[start : start + 30]) for start in range(0, 180, 10)]
    assert [row.total for row in result] == [sum(sums[i : i + 3]) // 3 for i in range(0, 18, 3)]


@pytest.mark.parametrize(("parallelism", "seed"), SCHEDULES)
def test_sliding_tuple_ts_is_exact_also_out_of_order(parallelism: int, seed: int | None) -> None:
    rows = wholes(300)
    shuffled = [row for start in range(0, 300, 10) for row in reversed(rows[start : start + 10])]
    result = run_local(
        storm_pool.sliding_tuple_ts(records(shuffled), collect), parallelism=parallelism, schedule_seed=seed
    )
    first, last = rows[0].at_ms, rows[-1].at_ms
    expected = []
    for start in range(first // 3000 * 3000 - 3000, last + 1, 3000):
        values = [row.value for row in rows if start <= row.at_ms < start + 5000]
        expected += [WindowTotal(start + 5000, sum(values))] if values else []
    assert result == expected


@pytest.mark.parametrize(("parallelism", "seed"), SCHEDULES)
@pytest.mark.parametrize(
    ("builder", "name"), [(storm_pool.single_join, "SingleJoinExample"), (storm_pool.join_bolt, "JoinBoltExample")]
)
def test_joins_equal_the_expected_pairs_of_storm(
    builder: Callable[..., Topology], name: str, parallelism: int, seed: int | None
) -> None:
    pool = json.loads(data_path("storm_examples/topologies.json").read_text())["topologies"]
    inputs = next(topology for topology in pool if topology["name"] == "JoinBoltExample")["input"]
    expected = next(topology for topology in pool if topology["name"] == name)["expected_any_order"]
    genders = [Gender(row["id"], i, row["gender"]) for i, row in enumerate(inputs["gender"])]
    ages = [Age(row["id"], i, row["age"]) for i, row in enumerate(inputs["age"])]
    result: Any = run_local(
        builder(records(genders), records(ages), collect), parallelism=parallelism, schedule_seed=seed
    )
    assert run_local(builder(out=collect)) == result  # the generator has the same input
    found = [{key: row._asdict()[key] for key in expected[0]} for row in result]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_a_half_pair_waits_thirty_seconds() -> None:
    ages = [Age(1, 0, 20), Age(2, 30_000, 21), Age(3, 30_001, 22)]
    genders = [Gender(1, 30_000, "male"), Gender(2, 0, "female"), Gender(3, 0, "male")]
    result: Any = run_local(
        storm_pool.single_join(records(sorted(genders, key=lambda row: row.at_ms)), records(ages), collect)
    )
    assert sorted(result) == [Person(1, "male", 20), Person(2, "female", 21)]


def test_generated_streams_repeat_by_seed() -> None:
    for stream in ("words", "sentences", "integers", "uuids", "requests"):
        assert list(generate(stream, 5, 50)) == list(generate(stream, 5, 50)) != list(generate(stream, 6, 50))
