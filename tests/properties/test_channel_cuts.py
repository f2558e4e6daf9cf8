"""Whatever links lose, double and swap, and whenever they are cut: the same rows, watermarks, barriers and counts arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_dataflow.runtime.channels import ReceivingChannel
from agiledart_dataflow.runtime.resending import Unacknowledged
from agiledart_executor.channels.data_links import ChannelSender, DataPort, _IncomingChannel, barrier_mark
from agiledart_executor.instances.running_instance import InputEnd
from agiledart_kernel.frames import BARRIER, PUNCTUATION_ONLY, DataHeader
from agiledart_kernel.limits import KEPT_BYTES
from agiledart_kernel.randomness import RandomStream
from agiledart_transport.link import Link
from tests.reference.cut_channel import ACTIONS, CutChannel

SEEDS = 100


@given(st.sampled_from((1, 2, 4, 16)), st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 999)), max_size=120))
def test_the_same_rows_arrive_under_any_link_faults(window: int, actions: list[tuple[str, int]]) -> None:
    channel = CutChannel(window)
    for action, argument in actions:
        channel.do(action, argument)
    channel.settle()
    channel.check()


def drawn(seed: int, port: type[DataPort] = DataPort) -> CutChannel:
    """One run from a seed."""
    random = RandomStream(seed, "cut channel")
    channel = CutChannel(random.choice((1, 2, 4, 16)), port)
    for _ in range(150):
        channel.do(random.choice(ACTIONS), random.index(1_000))
    channel.settle()
    channel.check()
    return channel


def test_many_seeds_cover_all_events() -> None:
    runs = [drawn(seed) for seed in range(SEEDS)]
    assert sum(run.end.sender.kept.resent for run in runs) > SEEDS
    assert sum(run.input.early.duplicate_frames for run in runs) > SEEDS
    assert sum(run.most_early > 2 for run in runs) > SEEDS // 10
    assert sum(run.most_kept > KEPT_BYTES // 2 for run in runs) > SEEDS // 10


class TakesDoubles(DataPort):
    """A frame that has come before is taken as the next one."""

    def _out_of_order(self, route: _IncomingChannel, link: Link, number: int, body: bytes) -> None:
        header, came = DataHeader.unpack(body), route.end.channel
        if number < came.expected:
            barrier = barrier_mark(header)
            self._take(route, link, came.expected, came.rows, header.rows, barrier, body)
        else:
            super()._out_of_order(route, link, number, body)


class TakesBarriersTwice(DataPort):
    """A barrier that has come before counts again."""

    def _out_of_order(self, route: _IncomingChannel, link: Link, number: int, body: bytes) -> None:
        header, came = DataHeader.unpack(body), route.end.channel
        if number < came.expected and header.flags & BARRIER:
            self._take(route, link, came.expected, came.rows, 0, barrier_mark(header), body)
        else:
            super()._out_of_order(route, link, number, body)


class HurriesMarks(DataPort):
    """A watermark has no rows, so it need not wait in the queue."""

    def _out_of_order(self, route: _IncomingChannel, link: Link, number: int, body: bytes) -> None:
        header, came = DataHeader.unpack(body), route.end.channel
        if number > came.expected and header.flags == PUNCTUATION_ONLY:
            self._take(route, link, came.expected, came.rows, 0, None, body)
        else:
            super()._out_of_order(route, link, number, body)


def complaint(port: type[DataPort] = DataPort) -> tuple[int, str] | None:
    """The first seed that finds something wrong, and what; asserted invariants of our own machines count."""
    for seed in range(SEEDS):
        try:
            drawn(seed, port)
        except Exception as error:  # noqa: BLE001  a planted bug may show as anything
            return seed, f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("port", [TakesDoubles, TakesBarriersTwice, HurriesMarks])
def test_a_wrong_receiver_is_found(port: type[DataPort]) -> None:
    assert complaint(port) is not None


def told_before_it_is_taken(self: InputEnd, batches: int, *, finished: bool) -> None:
    """Frames are acknowledged when they have come."""
    while self.batches_taken < batches:
        self.batches_taken += 1
        self.rows_or_watermark.popleft()
    if self.acknowledge is not None and (due := self.channel.due(self.channel.frames, all_of_it=True)):
        self.acknowledge(*due)


def moved_without_the_window(self: ChannelSender, link: Link) -> None:
    """Only what is new goes over the new link."""
    self.link = link
    self.ready()


def kept_till_it_was_sent(self: Unacknowledged, number: int, body: bytes) -> None:
    """A frame that a link has taken is not kept."""
    self._next = number + 1


def told_once(self: InputEnd) -> None:
    """An acknowledgement is never repeated."""


def not_released(self: Unacknowledged, frames: int, watermarks: int) -> None:
    """Acknowledged rows are kept all the same."""


def told_by_halves_of_a_window(self: ReceivingChannel) -> None:
    """Large frames are acknowledged as late as small ones, though their sender keeps fewer of them."""


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (InputEnd, "taken", told_before_it_is_taken),
        (ChannelSender, "move", moved_without_the_window),
        (Unacknowledged, "sends", kept_till_it_was_sent),
        (InputEnd, "repeat_acknowledgement", told_once),
        (Unacknowledged, "acknowledge", not_released),
        (ReceivingChannel, "acknowledge_next", told_by_halves_of_a_window),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_bug_is_found(owner: type, name: str, wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, wrong)
    assert complaint() is not None
