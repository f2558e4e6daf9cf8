"""Spec of the dataflow, section 10, T6: WordCount counts exactly, for any parallelism 1 to 8 and any schedule."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from agiledart import Topology, collect, records, sliding
from agiledart.testing import run_local
from agiledart_kernel.instants import EventTime
from agiledart_kernel.randomness import RandomStream

WORDS = ["the", "node", "ring", "a", "stream", "of", "tuples", "edge"]


def sentences(seed: int) -> list[tuple[int, str]]:
    """(time, sentence) in order of time."""
    random = RandomStream(seed, "sentences")
    return [(EventTime(i), " ".join(random.choice(WORDS) for _ in range(1 + random.index(9)))) for i in range(120)]


def words_of(sentence: tuple[int, str]) -> list[str]:
    """Split."""
    return sentence[1].split()


@pytest.mark.parametrize("parallelism", range(1, 9))
def test_t6_wordcount_is_exact_for_any_parallelism(parallelism: int) -> None:
    lines = sentences(1)
    topology = Topology("wordcount")
    source = topology.source("sentences", records(lines), rows=tuple[int, str], event_time=lambda line: line[0])
    counts = (
        source.flat_map(words_of, "split").key_by(lambda word: word).window(sliding(timedelta(days=1))).count("count")
    )
    counts.sink("out", collect)
    changes: Any = run_local(topology, parallelism=parallelism, schedule_seed=parallelism)
    last = {change.key: change.value for change in changes}
    assert last == Counter(word for line in lines for word in words_of(line))
