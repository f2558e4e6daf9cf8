"""When a link is asked, when another is dialled, and which carries on; a clock and a network made of numbers."""

import heapq

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_transport.link_failover import (
    REDIAL_NS,
    STALL_NS,
    AbandonLink,
    CancelDial,
    CheckLink,
    CheckLinkAt,
    DialFailed,
    DialLink,
    DialSucceeded,
    Effect,
    Event,
    LinkClosed,
    LinkFailover,
    LinkState,
    ProbeAnswered,
    ProbeLink,
    SwitchLink,
)

PATIENCE_NS = 60 * SECOND
RTT_NS = 20 * MILLISECOND
LOOK_NS = SECOND // 2


class World:
    """A link that always has something to send, and a way that works at times.

    Args:
        cuts: (from, to) in nanoseconds during which nothing passes. A connection that was cut stays dead: it backs off.
        sleeps: the same of the receiver; connections come through, answers wait.
    """

    def __init__(
        self, seed: int, cuts: tuple[tuple[int, int], ...] = (), sleeps: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self.machine = LinkFailover(PATIENCE_NS, RandomStream(seed, "world"))
        self.cuts, self.sleeps = cuts, sleeps
        self.now = self.sent = self.order = 0
        self.link_since = 0
        self.due: list[tuple[int, int, str, Event | None]] = [(0, 0, "beat", None)]
        self.looks_at = -1
        self.log: list[tuple[int, Effect]] = []
        self.dials: dict[int, int] = {}

    def _cut_between(self, begin: int, end: int) -> bool:
        return any(begin < to and since < end for since, to in self.cuts)

    def _awake(self, at: int) -> int:
        return next((to for since, to in self.sleeps if since <= at < to), at)

    def _later(self, at: int, what: str, event: Event | None = None) -> None:
        self.order += 1
        heapq.heappush(self.due, (at, self.order, what, event))

    def run(self, until: int) -> list[tuple[int, Effect]]:
        while self.due and self.due[0][0] <= until:
            self.now, _, what, event = heapq.heappop(self.due)
            if what == "beat":
                self._later(self.now + LOOK_NS, "beat")
            if what == "look" and self.now != self.looks_at:
                continue
            if isinstance(event, DialSucceeded | DialFailed) and event.dial not in self.dials:
                continue
            self.sent += 1
            self._step(event if event is not None else CheckLink(self.sent, 0))
        return self.log

    def _step(self, event: Event) -> None:
        for effect in self.machine.step(event, self.now):
            self.log.append((self.now, effect))
            match effect:
                case ProbeLink(probe):
                    echo = self._awake(self.now + RTT_NS // 2) + RTT_NS // 2
                    if not self._cut_between(self.link_since, echo):
                        self._later(echo, "echo", ProbeAnswered(probe))
                case DialLink(dial, timeout_ns):
                    self.dials[dial] = self.now
                    opened = self._awake(self.now + 2 * RTT_NS) + RTT_NS
                    if opened < self.now + timeout_ns and not self._cut_between(self.now, opened):
                        self._later(opened, "opened", DialSucceeded(dial))
                    else:
                        self._later(self.now + timeout_ns, "failed", DialFailed(dial, "timed out"))
                case SwitchLink(dial):
                    self.link_since = self.dials.pop(dial)
                    self.dials.clear()
                case CancelDial(dial):
                    for one in list(self.dials) if dial < 0 else [dial]:
                        self.dials.pop(one, None)
                case CheckLinkAt(at):
                    self.looks_at = at
                    self._later(at, "look")
                case AbandonLink():
                    pass


def of_kind(log: list[tuple[int, Effect]], kind: type) -> list[int]:
    return [at for at, effect in log if isinstance(effect, kind)]


def test_a_link_that_answers_is_only_probed() -> None:
    log = World(1).run(60 * SECOND)
    assert not of_kind(log, DialLink)
    assert 60 <= len(of_kind(log, ProbeLink)) <= 20 * 60


def test_an_idle_link_is_not_probed() -> None:
    machine = LinkFailover(PATIENCE_NS, RandomStream(1, "idle"))
    assert all(machine.step(CheckLink(0, 0), n * LOOK_NS) == [] for n in range(100))


@pytest.mark.parametrize("seed", range(50))
def test_rows_flow_soon_after_the_path_has_healed(seed: int) -> None:
    cut, healed = 3 * SECOND, 3 * SECOND + (2 + seed % 20) * SECOND + seed * 37 * MILLISECOND
    world = World(seed, cuts=((cut, healed),))
    log = world.run(healed + 10 * SECOND)
    first_dial = of_kind(log, DialLink)[0]
    assert cut <= first_dial <= cut + LOOK_NS + STALL_NS + RTT_NS
    (moved,) = of_kind(log, SwitchLink)
    assert moved <= healed + REDIAL_NS * 6 // 5 + 4 * RTT_NS
    assert world.machine.state is LinkState.WORKING
    assert world.machine.since is None


def test_a_sleeping_receiver_is_not_abandoned() -> None:
    world = World(3, sleeps=((2 * SECOND, 7 * SECOND),))
    log = world.run(20 * SECOND)
    assert of_kind(log, DialLink)
    assert not of_kind(log, SwitchLink)
    assert world.machine.state is LinkState.WORKING


def test_a_link_that_never_heals_is_given_up_once() -> None:
    log = World(4, cuts=((SECOND, 10**15),)).run(3 * PATIENCE_NS)
    (given_up,) = of_kind(log, AbandonLink)
    assert PATIENCE_NS <= given_up <= PATIENCE_NS + 3 * SECOND
    assert not [at for at in of_kind(log, DialLink) if at > given_up]
    assert len(of_kind(log, DialLink)) <= PATIENCE_NS // (REDIAL_NS * 4 // 5)


def machine_that_asked(queued: int) -> LinkFailover:
    machine = LinkFailover(PATIENCE_NS, RandomStream(5, "thin"))
    effects = machine.step(CheckLink(10, 0, acknowledged=1_000, queued=queued), 0)
    assert effects == [ProbeLink(1), CheckLinkAt(STALL_NS)]
    return machine


def test_a_thin_link_is_not_silent_while_bytes_before_the_probe_move() -> None:
    machine = machine_that_asked(queued=1 << 20)
    for turn in range(1, 40):
        look = CheckLink(10 + turn, 0, acknowledged=1_000 + 20_000 * turn, queued=1 << 20)
        assert not of_kind([(0, one) for one in machine.step(look, turn * LOOK_NS)], DialLink)
    assert machine.state is LinkState.WORKING


def test_bytes_behind_the_probe_prove_nothing() -> None:
    """A relay's own kernel takes them, while the other end of the circuit is gone."""
    machine = machine_that_asked(queued=50)
    machine.step(CheckLink(11, 0, acknowledged=1_050, queued=0), LOOK_NS // 10)
    for turn in range(1, 4):
        machine.step(CheckLink(11 + turn, 0, acknowledged=1_050 + 20_000 * turn, queued=0), turn * LOOK_NS)
    assert machine.state is LinkState.SILENT


def test_any_frame_from_the_peer_proves_that_it_is_alive() -> None:
    machine = machine_that_asked(queued=50)
    for turn in range(1, 20):
        machine.step(CheckLink(10 + turn, turn, acknowledged=1_050), turn * LOOK_NS)
    assert machine.state is LinkState.WORKING


def test_an_echo_of_another_probe_counts_for_nothing() -> None:
    machine = machine_that_asked(queued=0)
    assert machine.step(ProbeAnswered(2), MILLISECOND) == []
    machine.step(CheckLink(10, 0), STALL_NS)
    assert machine.state is LinkState.SILENT


def test_a_lost_link_is_redialled_at_once_and_a_flapping_one_ever_more_slowly() -> None:
    machine = LinkFailover(10**15, RandomStream(6, "refused"))
    effects = machine.step(LinkClosed("reset"), 0)
    now, pauses = 0, []
    for dial in range(1, 9):
        assert effects[0] == DialLink(dial, effects[0].timeout_ns if isinstance(effects[0], DialLink) else 0)
        assert machine.step(DialSucceeded(dial), now)[0] == SwitchLink(dial)
        effects = machine.step(LinkClosed("life"), now)
        while not isinstance(effects[0], DialLink):
            assert isinstance(effects[0], CheckLinkAt)
            pauses.append(effects[0].at - now)
            now = effects[0].at
            effects = machine.step(CheckLink(0, 0), now)
    assert pauses[0] >= REDIAL_NS * 8 // 10
    assert pauses[-1] > 4 * SECOND
    assert machine.since == 0, "no link has answered since the first was lost"


def is_relayed() -> LinkFailover:
    """A machine whose link went over to a circuit, and that circuit answers."""
    machine = LinkFailover(PATIENCE_NS, RandomStream(7, "relayed"))
    machine.step(LinkClosed("cut"), 0)
    assert machine.step(DialSucceeded(1, is_relayed=True), 1)[0] == SwitchLink(1)
    (probe,) = [one for one in machine.step(CheckLink(1, 0), 1) if isinstance(one, ProbeLink)]
    machine.step(ProbeAnswered(probe.probe), 2)
    return machine


def looks_back(machine: LinkFailover, since: int, until: int) -> list[int]:
    """When it dials the direct way, with the number of the dial; the circuit has nothing to carry."""
    found = []
    for now in range(since, until, LOOK_NS):
        for effect in machine.step(CheckLink(2, 1), now):
            assert isinstance(effect, DialLink)
            assert effect.is_direct
            found.append(now)
    return found


def test_while_relayed_the_direct_path_is_retried_and_used_once_open() -> None:
    machine = is_relayed()
    tries = looks_back(machine, LOOK_NS, 20 * SECOND)
    assert 4 <= len(tries) <= 9
    assert machine.step(DialSucceeded(5, is_relayed=False), 20 * SECOND)[0] == SwitchLink(5)
    assert looks_back(machine, 22 * SECOND, 22 * SECOND) == []


def test_another_circuit_is_not_taken_while_one_works() -> None:
    assert is_relayed().step(DialSucceeded(2, is_relayed=True), SECOND) == [CancelDial(2)]


def test_a_direct_path_that_falls_silent_again_is_tried_ever_less() -> None:
    machine, now, pauses, dial = is_relayed(), int(SECOND), list[int](), 10
    for _ in range(6):
        tries = looks_back(machine, now, now + 200 * SECOND)
        pauses.append(tries[0] - now)
        now, dial = tries[0], dial + 2
        assert machine.step(DialSucceeded(dial, is_relayed=False), now)[0] == SwitchLink(dial)
        assert isinstance(machine.step(LinkClosed("bad link"), now + SECOND)[-1], CheckLinkAt)
        assert machine.step(DialSucceeded(dial + 1, is_relayed=True), now + SECOND)[0] == SwitchLink(dial + 1)
        (probe,) = [one for one in machine.step(CheckLink(1, 0), now + SECOND) if isinstance(one, ProbeLink)]
        machine.step(ProbeAnswered(probe.probe), now + SECOND + 1)
        now += 2 * SECOND
    assert pauses[-1] > 8 * pauses[0]


def test_a_dial_that_comes_too_late_is_dropped() -> None:
    machine = machine_that_asked(queued=0)
    machine.step(CheckLink(10, 0), STALL_NS)
    assert machine.step(ProbeAnswered(1), STALL_NS + 1) == [CancelDial(-1)]
    assert machine.step(DialSucceeded(1), STALL_NS + 2) == [CancelDial(1)]
