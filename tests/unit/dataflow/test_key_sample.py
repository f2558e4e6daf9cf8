"""Key groups of some of the rows."""

import pytest

from agiledart_dataflow.counts import key_sample
from agiledart_dataflow.counts.interval_measures import INTERVAL_NS
from agiledart_dataflow.counts.key_sample import ENOUGH, SAMPLED_ROWS, KeySample
from agiledart_dataflow.data.partitioning import key_group


def test_the_first_rows_of_a_frame_are_sampled_and_old_ones_expire() -> None:
    sample = KeySample({3: lambda row: row["key"]})
    hot, cool = key_group("hot"), key_group("cool")
    assert hot != cool
    sample.look(3, [{"key": "hot"}] * (SAMPLED_ROWS - 4) + [{"key": "cool"}] * 100)
    sample.look(4, [{"key": "cool"}])  # an edge without keys
    sample.look(3, [{"value": 1}, {"key": []}])  # no key
    assert dict(sample.counts(1)) == {hot: SAMPLED_ROWS - 4, cool: 4}
    sample.look(3, [{"key": "cool"}])
    assert dict(sample.counts(INTERVAL_NS + 1)) == {hot: SAMPLED_ROWS - 4, cool: 5}
    sample.look(3, [{"key": "cool"}])
    assert dict(sample.counts(2 * INTERVAL_NS + 1)) == {cool: 1}


def test_key_groups_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def group(key: object) -> int:
        asked.append(key)
        return key_group(key)

    monkeypatch.setattr(key_sample, "key_group", group)
    sample = KeySample({3: lambda row: row})
    for _ in range(20):
        sample.look(3, ["hot", "cool", ["no key"]])
    assert asked == ["hot", "cool"]
    for key in range(2_000):
        for number in range(20):
            sample.look(3, [f"{key}-{number}"])
    for _ in range(4):
        sample.look(3, ["hot"])
    assert asked.count("hot") == 2, "it was forgotten with others, so that they do not grow without bound"
    assert dict(sample.counts(1))[key_group("hot")] >= 21


def test_in_a_busy_interval_one_of_four_frames_is_sampled() -> None:
    sample = KeySample({3: lambda row: row})
    for interval in (1, 2):
        for _ in range(ENOUGH + 4_000):
            sample.look(3, ["hot"])
        assert dict(sample.counts(interval * INTERVAL_NS)) == {key_group("hot"): ENOUGH + 1_000}
