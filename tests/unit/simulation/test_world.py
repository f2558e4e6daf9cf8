"""The world itself, with a toy machine."""

from collections.abc import Sequence

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND, Instant
from agiledart_kernel.machine import (
    CancelTimer,
    Effect,
    Event,
    LinkLost,
    Message,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_simulation.world.faults import Clog, Crash, Heal, HoldMessages, Partition, Pause, Stutter, Weather, apply
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.trace import Trace
from agiledart_simulation.world.world import World


class Note(Message, frozen=True, gc=False, tag=1):
    text: str


class Go(Event, frozen=True, gc=False):
    effects: tuple[Effect, ...]


class Shout(Effect, frozen=True, gc=False):
    text: str


class Toy:
    """Obeys its script, and records its events."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Event]] = []

    def step(self, event: Event, now: Instant) -> Sequence[Effect]:
        if isinstance(event, Go):
            return event.effects
        self.seen.append((now, event))
        return ()


A, B = Peer(NodeId(1), 1), Peer(NodeId(2), 1)


def world_of_two(network: NetworkConfig | None = None, **options: object) -> World[Toy]:
    world: World[Toy] = World(1, lambda peer, random: Toy(), network, **options)  # type: ignore[arg-type]
    world.start(A)
    world.start(B)
    return world


def say(world: World[Toy], count: int = 1, gap_ns: int = 0) -> None:
    for number in range(count):
        world.inject(A.node, Go((Send(B, Note(str(number))),)), number * gap_ns)


def heard(world: World[Toy], node: NodeId = B.node) -> list[str]:
    return [event.message.text for _, event in world.nodes[node].machine.seen if isinstance(event, Received)]  # type: ignore[attr-defined]


def test_messages_take_time_and_keep_order() -> None:
    world = world_of_two(NetworkConfig(jitter_ns=50 * MILLISECOND))
    say(world, 50, MILLISECOND)
    world.run_for(SECOND)
    assert heard(world) == [str(number) for number in range(50)]
    assert world.nodes[B.node].machine.seen[0][0] >= 200_000


def test_messages_are_reordered_and_duplicated() -> None:
    world = world_of_two(NetworkConfig(reorder=0.5, duplicate=0.5))
    say(world, 100, MILLISECOND)
    world.run_for(SECOND)
    assert heard(world) != sorted(heard(world), key=int)
    assert len(heard(world)) > 120


def test_messages_are_lost_and_cut() -> None:
    world = world_of_two(NetworkConfig(loss=0.5))
    say(world, 200, MILLISECOND)
    world.run_for(SECOND)
    assert 60 < len(heard(world)) < 140
    assert world.network.lost == 200 - len(heard(world))
    apply(world, Heal())
    for cut in (Partition((A.node,)), Clog(A.node, B.node)):
        world.nodes[B.node].machine.seen.clear()
        apply(world, cut)
        say(world)
        world.run_for(SECOND)
        assert heard(world) == []
        apply(world, Heal())
        say(world)
        world.run_for(SECOND)
        assert heard(world) == ["0"]


def test_timers_are_replaced_and_cancelled() -> None:
    world = world_of_two()
    world.inject(A.node, Go((SetTimer("x", Instant(10)), SetTimer("y", Instant(20)), SetTimer("x", Instant(30)))))
    world.inject(A.node, Go((CancelTimer("y"),)))
    world.run_for(100)
    assert world.nodes[A.node].machine.seen == [(30, TimerFired("x"))]


def test_a_killed_process_resets_its_links_and_a_dead_machine_does_not() -> None:
    for silent, hints in ((False, 1), (True, 0)):
        world = world_of_two()
        say(world)
        world.run_for(SECOND)
        apply(world, Crash((B.node,), silent))
        world.run_for(SECOND)
        lost = [event for _, event in world.nodes[A.node].machine.seen if isinstance(event, LinkLost)]
        assert len(lost) == hints
        say(world)
        world.run_for(SECOND)
        lost = [event for _, event in world.nodes[A.node].machine.seen if isinstance(event, LinkLost)]
        assert len(lost) == 2 * hints, "a connection to a host without the process is refused"


def test_a_restart_is_a_new_incarnation_with_a_new_machine() -> None:
    world = world_of_two()
    apply(world, Crash((B.node,)))
    node = world.start(B)
    assert node.peer.incarnation == 2
    assert node.machine.seen == []
    with pytest.raises(ValueError, match="is up"):
        world.start(B)


def test_a_paused_node_gets_everything_later_in_order() -> None:
    world = world_of_two()
    apply(world, Pause(B.node, SECOND))
    say(world, 3, MILLISECOND)
    world.run_for(SECOND // 2)
    assert heard(world) == []
    world.run_for(SECOND)
    assert heard(world) == ["0", "1", "2"]
    assert {at for at, _ in world.nodes[B.node].machine.seen} == {SECOND}


def test_other_effects_go_to_the_callback() -> None:
    shouts: list[tuple[Peer, Effect]] = []
    world = world_of_two(on_effect=lambda peer, effect: shouts.append((peer, effect)))
    world.inject(A.node, Go((Shout("hey"),)))
    world.call(5, lambda: shouts.append((B, Shout("call"))))
    world.run_for(10)
    assert shouts == [(A, Shout("hey")), (B, Shout("call"))]


def test_the_trace_distinguishes_runs() -> None:
    digests = []
    for text in ("a", "a", "b"):
        trace = Trace(keep=5)
        world = world_of_two(trace=trace)
        world.inject(A.node, Go((Send(B, Note(text)),)))
        world.run_for(SECOND)
        assert trace.events == 2
        digests.append(trace.digest)
    assert digests[0] == digests[1] != digests[2], "payloads count, not only senders and times"


def test_run_until_stops_early_and_at_its_limit() -> None:
    world = world_of_two()
    assert world.run_until(lambda: world.now >= SECOND, 5 * SECOND)
    assert world.now < 2 * SECOND
    assert not world.run_until(lambda: False, SECOND)


def test_weather_changes_only_its_own_figures() -> None:
    world = world_of_two(NetworkConfig(base_ns=5, span_ns=7))
    apply(world, Weather(0.1, 0.2, 0.3))
    assert world.network.config == NetworkConfig(base_ns=5, span_ns=7, loss=0.1, duplicate=0.2, reorder=0.3)


def test_a_node_has_its_own_clock() -> None:
    """A clock that is a tenth too fast fires its timers a tenth too early, in the world's time."""
    world: World[Toy] = World(1, lambda peer, random: Toy())
    world.start(A, rate_ppb=100_000_000, offset_ns=7 * SECOND)
    world.start(B)
    node = world.nodes[A.node]
    assert node.local(Instant(0)) == 7 * SECOND
    assert node.local(Instant(SECOND)) == 8_100_000_000
    world.inject(A.node, Go((SetTimer("x", Instant(node.local(Instant(0)) + SECOND)),)))
    fired: list[int] = []
    world.observers.append(lambda stepped: fired.append(world.now) if stepped is node and node.machine.seen else None)
    world.run_for(2 * SECOND)
    assert fired == [909_090_910]
    at, event = node.machine.seen[0]
    assert event == TimerFired("x")
    assert at >= 8 * SECOND, "never early by its own clock"


def test_a_clock_that_changes_its_speed_takes_its_timers_along() -> None:
    world = world_of_two()
    world.inject(A.node, Go((SetTimer("x", Instant(SECOND)), SetTimer("y", Instant(3 * SECOND)), CancelTimer("y"))))
    world.run_for(SECOND // 2)
    world.set_rate(A.node, -500_000_000)
    world.run_for(SECOND - 1)
    assert world.nodes[A.node].machine.seen == []
    world.run_for(SECOND)
    assert world.nodes[A.node].machine.seen == [(SECOND, TimerFired("x"))]
    apply(world, Crash((A.node,)))
    assert world.start(A).rate_ppb == -500_000_000, "it is the machine's clock, not the process's"


def test_a_slow_node_wakes_at_intervals() -> None:
    world = world_of_two()
    apply(world, Stutter(B.node, 100 * MILLISECOND))
    say(world, 30, 10 * MILLISECOND)
    world.run_for(SECOND)
    assert heard(world) == [str(number) for number in range(30)]
    assert {at % (100 * MILLISECOND) for at, _ in world.nodes[B.node].machine.seen} == {0}
    apply(world, Stutter(B.node, 0))
    world.nodes[B.node].machine.seen.clear()
    say(world)
    world.run_for(SECOND)
    assert world.nodes[B.node].machine.seen[0][0] % (100 * MILLISECOND) != 0


def test_a_pause_can_be_extended() -> None:
    world = world_of_two()
    apply(world, Pause(B.node, SECOND))
    world.run_for(SECOND // 2)
    apply(world, Pause(B.node, SECOND))
    say(world)
    world.run_for(SECOND)
    assert [at for at, _ in world.nodes[B.node].machine.seen] == [3 * SECOND // 2]


def test_a_lost_disk_loses_the_incarnation_number() -> None:
    world = world_of_two()
    for lives in (2, 3):
        apply(world, Crash((B.node,)))
        assert world.start(B).peer.incarnation == lives
    apply(world, Crash((B.node,)))
    assert world.start(B, forgets=True).peer.incarnation == 1


def test_cancelled_timers_do_not_stay_in_the_queue() -> None:
    for queue in ("heap", "wheel"):
        world = world_of_two(queue=queue)
        for round_ in range(40):
            timers = tuple(SetTimer(f"t{name}", Instant(100 * SECOND + round_)) for name in range(250))
            world.inject(A.node, Go(timers))
            world.run_for(MILLISECOND)
        assert world.pending < 5_000
        world.run_for(200 * SECOND)
        seen = [event for _, event in world.nodes[A.node].machine.seen]
        names = sorted(str(event.name) for event in seen if isinstance(event, TimerFired))
        assert names == sorted(f"t{i}" for i in range(250))


def test_both_queues_carry_the_same_conversation() -> None:
    for queue in ("heap", "wheel"):
        world = world_of_two(queue=queue)
        say(world, 20, MILLISECOND)
        world.run_for(SECOND)
        assert heard(world) == [str(number) for number in range(20)]
        assert world.messages_sent == 20


@pytest.mark.parametrize("queue", ["heap", "wheel"])
def test_a_heal_releases_the_messages_of_held_links(queue: str) -> None:
    world = world_of_two(queue=queue)
    apply(world, HoldMessages(A.node, B.node, 10 * SECOND))
    for text in ("one", "two"):
        world.inject(A.node, Go((Send(B, Note(text)),)))
        world.run_for(SECOND)
    apply(world, Heal())
    world.inject(A.node, Go((Send(B, Note("three")),)))
    world.run_for(SECOND)
    seen = world.nodes[B.node].machine.seen
    assert [event.message for _, event in seen if isinstance(event, Received)] == [
        Note("one"),
        Note("two"),
        Note("three"),
    ]
    assert all(2 * SECOND < at < 2 * SECOND + 10 * MILLISECOND for at, _ in seen)
