"""The source's rules, with a topic in memory: positions, groups, shares, new partitions, brokers that go and come."""

import pytest

pytest.importorskip("aiokafka", reason="no aiokafka here: pip install 'agiledart[kafka]'")

from typing import Any, NamedTuple

from agiledart import Topic
from agiledart_connectors.kafka import kafka_reader, message_queue, topic_fetcher
from agiledart_connectors.kafka.partitions import parse_topic_offsets
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.limits import MAX_LINE_BYTES
from tests.unit.connectors.reading import Taken, taken, until
from tests.unit.kafka.fake import Log, Number, reader, threads


class Named(NamedTuple):
    """A row with its topic."""

    topic: Topic
    number: int


def numbers(log: Log, counts: dict[int, int]) -> list[Number]:
    """Fill partitions with different numbers; all of them."""
    total = 0
    for partition, count in counts.items():
        log.add(partition, [{"number": total + n} for n in range(count)], 1_000 + partition)
        total += count
    return [Number(n) for n in range(total)]


def took(here: Any, rows: list[Number]) -> bool:
    """Read one more; never enough."""
    rows += here.read(1, 0).rows
    return False


def test_all_partitions_are_read_each_in_order() -> None:
    log = Log()
    rows = numbers(log, {0: 250, 1: 130, 2: 0})
    here = Taken(reader(log)).until(lambda it: len(it.rows) == len(rows))
    assert sorted(here.rows) == rows
    assert [row for row in here.rows if row.number < 250] == rows[:250]
    assert parse_topic_offsets(here.reader.position()).at == {0: 250, 1: 130, 2: 0}
    here.reader.close()
    here.reader.close()
    assert threads() == 0


def test_reading_from_a_position_gives_exactly_the_rest() -> None:
    log = Log()
    rows = numbers(log, {0: 300, 1: 300})
    here = Taken(reader(log)).until(lambda it: len(it.rows) >= 200)
    position, before = here.reader.position(), list(here.rows)
    here.until(lambda it: len(it.rows) == 600)
    here.reader.close()
    again: Any = reader(log, "from=latest")  # a position is stronger than any beginning
    again.seek(position)
    assert again.position() == position
    there = Taken(again).until(lambda it: len(it.rows) >= 600 - len(before))
    assert sorted(before + there.rows) == rows
    again.close()


def test_three_shares_cover_the_topic() -> None:
    log = Log()
    rows = numbers(log, dict.fromkeys(range(7), 10))
    read = [taken(reader(log, f"share={n}/3&to=end")).rows for n in (1, 2, 3)]
    assert [len(one) for one in read] == [30, 20, 20]
    assert sorted(row for one in read for row in one) == rows


@pytest.mark.parametrize("most", [1, 7, 100])
def test_up_to_the_end_messages_are_ordered_by_time(most: int) -> None:
    log = Log(gaps={1: 2})
    for n in range(40):
        log.add(n * 7 % 3, [{"number": n}], n // 2)
    here = reader(log, "to=end", most=most)
    rows: list[Number] = []
    until(lambda: took(here, rows) or here.position())
    log.add(0, [{"number": 99}])  # it has begun: this is behind its end
    rows += taken(here).rows
    assert [row.number for row in rows] == sorted(range(40), key=lambda n: (n // 2, n * 7 % 3, n))
    assert parse_topic_offsets(here.position()).ends is not None


def test_an_end_offset_is_kept_when_reading_again() -> None:
    log = Log()
    rows = numbers(log, {0: 50, 1: 50})
    here = Taken(reader(log, "to=end", most=10)).until(lambda it: len(it.rows) >= 20)
    position, before = here.reader.position(), list(here.rows)
    here.reader.close()
    numbers(log, {0: 5, 1: 5, 2: 5})
    again: Any = reader(log, "to=end", most=10)
    again.seek(position)
    assert sorted(before + taken(again).rows) == rows


def test_the_start_position_follows_the_options() -> None:
    log = Log(floor={1: 3})
    log.add(0, [{"number": n} for n in range(4)], 1_000)
    log.add(0, [{"number": n} for n in range(4, 8)], 2_000)
    log.add(1, [{"number": n} for n in range(10, 18)], 1_500)
    log.groups = {0: 6}

    def beginning(options: str) -> list[int]:
        found = [row.number for row in taken(reader(log, f"to=end&{options}")).rows]
        return sorted(found)

    assert beginning("from=earliest") == [*range(8), *range(13, 18)]
    assert beginning("group=g") == [6, 7, *range(13, 18)], "committed; where nothing was, from its beginning"
    assert beginning("from=1970-01-01T00:00:02Z") == [4, 5, 6, 7]
    assert beginning("from=latest") == []
    log.groups = {1: 1}
    assert beginning("group=g&share=2/2") == list(range(13, 18)), "the group's messages are deleted by now"


def test_from_latest_reads_messages_from_now_on() -> None:
    log = Log()
    numbers(log, {0: 10})
    here = reader(log, "from=latest")
    here.read(1, 0)
    until(lambda: here.read(1, 0) and here.position())
    log.add(0, [{"number": 77}])
    assert Taken(here).until(lambda it: bool(it.rows)).rows == [Number(77)]
    here.close()


def test_a_run_with_checkpoints_starts_again_at_its_first_position() -> None:
    log = Log()
    numbers(log, {0: 10})
    noted: list[bytes] = []
    first = reader(log, "from=latest")
    first.saved_by_epochs(b"", noted.append)
    until(lambda: first.read(1, 0) and noted)
    first.close()
    log.add(0, [{"number": 77}])  # comes while it is away, before any epoch
    second = reader(log, "from=latest")
    second.saved_by_epochs(noted[0], noted.append)
    assert Taken(second).until(lambda it: bool(it.rows)).rows == [Number(77)]
    second.close()


def test_the_groups_offset_is_committed_with_the_epoch_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_reader, "COMMIT_SECONDS", 0.0)
    log = Log()
    numbers(log, {0: 30, 1: 20})
    here = reader(log, "group=g")
    here.saved_by_epochs(b"", lambda position: None)
    read = Taken(here).until(lambda it: len(it.rows) == 50)
    position = here.position()
    for _ in range(20):
        read._read()
    assert log.commits == []
    here.trim(position)
    until(lambda: log.groups == {0: 30, 1: 20})
    here.close()


def test_without_epochs_the_groups_offset_follows_emitted_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_reader, "COMMIT_SECONDS", 0.0)
    log = Log()
    numbers(log, {0: 30})
    here = reader(log, "group=g", most=10)
    until(lambda: here.read(30, 0).rows)
    assert log.commits == [], "these are not on their way yet"
    Taken(here).until(lambda _: log.groups.get(0) == 30)
    numbers(log, {0: 5})
    Taken(here).until(lambda it: bool(it.rows))
    here.close()
    assert log.groups == {0: 35}, "the last one is reported at the end"


def test_new_partitions_are_read_from_their_beginning() -> None:
    log = Log()
    numbers(log, {0: 10})
    here = Taken(reader(log, "from=latest&share=1/2"))
    here.until(lambda it: bool(it.reader.position()))
    log.add(1, [{"number": 50}])  # of the other share
    log.add(2, [{"number": 51}, {"number": 52}])
    here.until(lambda it: len(it.rows) == 2)
    assert here.rows == [Number(51), Number(52)]
    assert any("numbers has 3 partitions now" in note for note in here.notes), here.notes
    assert parse_topic_offsets(here.reader.position()).at[2] == 2
    log.add(0, [{"number": 53}])
    here.until(lambda it: len(it.rows) == 3)
    assert here.rows[2] == Number(53), "those that it had go on where they were"
    here.reader.close()


def test_brokers_may_leave_and_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_fetcher, "SILENCE_SECONDS", 0.0)
    log = Log(is_up=False)
    here = Taken(reader(log))
    here.until(lambda it: bool(it.reader.connection_status()))
    assert here.reader.connection_status().startswith("not connected to broker:9092 for 0 s (refused), next try in ")
    log.add(0, [{"number": 1}])
    log.is_up = True
    here.until(lambda it: bool(it.rows))
    assert here.reader.connection_status() == ""
    log.is_up = False
    here.until(lambda it: bool(it.reader.connection_status()))
    log.add(0, [{"number": 2}])
    log.is_up = True
    here.until(lambda it: len(it.rows) == 2)
    assert here.rows == [Number(1), Number(2)], "none twice, none lost"
    assert [note.split(";")[0] for note in here.notes][:2] == [
        "not connected to broker:9092 (refused)",
        "connected to broker:9092",
    ]
    here.reader.close()


def test_an_invalid_message_is_counted_and_reported_with_its_place() -> None:
    log = Log()
    log.add(0, [{"number": 1}, {"number": "many"}, None, b"\xff", b'"' + b"x" * MAX_LINE_BYTES + b'"', {"number": 2}])
    here = Taken(reader(log)).until(lambda it: len(it.rows) == 2)
    assert here.malformed == {"type": 1, "form": 2, "size": 1}
    assert "numbers/0@1: number: 'many' is no int" in here.notes, here.notes
    assert f"numbers/0@4: a message of {MAX_LINE_BYTES + 2:,} bytes" in here.notes
    assert parse_topic_offsets(here.reader.position()).at == {0: 6}
    here.reader.close()


def test_messages_deleted_by_the_broker_fail_the_source_with_a_message() -> None:
    log = Log()
    numbers(log, {0: 20})
    here = Taken(reader(log, most=5)).until(lambda it: bool(it.rows))
    position = here.reader.position()
    here.reader.close()
    numbers(log, {0: 20})
    log.floor[0] = 30
    again: Any = reader(log)
    again.seek(position)
    with pytest.raises(OperationFailed, match=r"numbers/0: offset \d+ was to be read next, and the topic begins at 30"):
        Taken(again).until(lambda it: bool(it.rows))
    again.close()


def test_waiting_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    numbers(log, {0: 3 * message_queue.MAX_WAITING})
    here = reader(log, most=1_000)
    here.read(1, 0)
    until(lambda: here._message_queue.is_full)
    assert here._message_queue._count <= message_queue.MAX_WAITING + 1_000
    assert (
        len(Taken(here).until(lambda it: len(it.rows) >= 3 * message_queue.MAX_WAITING - 1).rows)
        <= 3 * message_queue.MAX_WAITING
    )
    here.close()


def test_a_field_may_hold_the_topic() -> None:
    log = Log()
    numbers(log, {0: 1})
    assert taken(reader(log, "to=end", Named)).rows == [Named(Topic("numbers"), 0)]


def test_messages_that_arrive_during_the_start_lookup_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread may begin, and put messages, between any two questions of the reader."""
    log = Log()
    rows = numbers(log, {0: 5})
    here = reader(log)
    take = message_queue.MessageQueue.take
    waited: list[None] = []

    def late(self: Any, most: int) -> Any:
        if not waited:
            until(lambda: self._begun is not None and self._pieces)
            waited.append(None)
        return take(self, most)

    monkeypatch.setattr(message_queue.MessageQueue, "take", late)
    assert sorted(Taken(here).until(lambda it: len(it.rows) == 5).rows) == rows
    here.close()
