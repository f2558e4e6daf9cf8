"""Key groups of some of the rows."""

from agiledart_dataflow.counts.interval_measures import INTERVAL_NS
from agiledart_dataflow.counts.key_sample import SAMPLED_ROWS, KeySample
from agiledart_dataflow.data.partitioning import key_group


def test_the_first_rows_of_a_frame_count_and_what_is_old_is_forgotten() -> None:
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
