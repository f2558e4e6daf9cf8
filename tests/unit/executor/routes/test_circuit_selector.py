"""Which circuit carries the rows, by what happens to the ways; a clock and a network made of numbers."""

import pytest

from agiledart_executor.routes.circuit_costs import Circuit, CircuitReading
from agiledart_executor.routes.circuit_selector import AbandonRoute, DialCircuit, RequestPromise, SwitchCircuit
from agiledart_executor.routes.faster_path import FasterPathTrial
from agiledart_kernel.instants import MILLISECOND, SECOND
from tests.unit.executor.routes.circuit_world import PATIENCE_NS, SimulatedPath, Spans, World

MS, S = MILLISECOND, SECOND
NEVER: Spans = ()


def ways(
    cuts: Spans = NEVER, lossy: Spans = NEVER, a2: Spans = NEVER, a3: Spans = NEVER, rate: int = 0
) -> dict[str, SimulatedPath]:
    return {
        "": SimulatedPath(5 * MS, cuts, lossy, rate),
        "a2": SimulatedPath(10 * MS, a2),
        "a3": SimulatedPath(16 * MS, a3),
    }


@pytest.mark.parametrize("seed", range(10))
def test_a_healthy_path_is_probed_twenty_times_a_second_at_most(seed: int) -> None:
    world = World(ways(), seed=seed).run(60 * S)
    assert not world.dials()
    assert not world.moves()
    assert 5 * 60 <= world.probes(0, 60 * S) <= 20 * 60


def test_warm_keeps_two_other_circuits_open_and_limits_the_probe_rate() -> None:
    world = World(ways(), ("warm",)).run(60 * S)
    assert not world.moves()
    assert len(world.connections) == 3
    assert world.probes(10 * S, 60 * S) <= 20 * 50


def test_a_relay_that_improved_is_found_although_all_circuits_are_in_use() -> None:
    there = {
        "": SimulatedPath(5 * MS, ((10 * S, 300 * S),)),
        "a2": SimulatedPath(100 * MS),
        "a3": SimulatedPath(110 * MS),
        "a4": SimulatedPath(120 * MS),
        "a5": SimulatedPath(20 * MS, ((0, 40 * S),)),
    }
    world = World(there).run(200 * S)
    assert world.share("a5", 150 * S, 200 * S) == 1.0


@pytest.mark.parametrize("seed", range(20))
def test_rows_leave_a_path_that_loses_four_of_five(seed: int) -> None:
    world = World(ways(lossy=((10 * S, 30 * S),)), seed=seed).run(50 * S)
    assert world.first_move(10 * S) <= 12 * S
    assert world.share("", 12 * S, 30 * S) <= 0.1
    assert world.share("", 35 * S, 50 * S) >= 0.9


@pytest.mark.parametrize("seed", range(20))
def test_warm_leaves_a_lossy_path_within_half_a_second(seed: int) -> None:
    world = World(ways(cuts=((10 * S, 30 * S),)), ("warm",), seed=seed).run(50 * S)
    assert world.first_move(10 * S) <= 10 * S + 400 * MS
    assert world.share("", 35 * S, 50 * S) >= 0.9


@pytest.mark.parametrize("seed", range(20))
def test_rows_bypass_a_cut_and_return(seed: int) -> None:
    world = World(ways(cuts=((10 * S, 30 * S),)), seed=seed).run(50 * S)
    assert world.first_move(10 * S) <= 11 * S
    assert world.share("", 11 * S, 30 * S) == 0
    assert world.share("", 35 * S, 50 * S) >= 0.9
    assert len(world.moves()) <= 3


def test_the_next_relay_takes_over_when_the_one_in_use_dies() -> None:
    world = World(ways(cuts=((10 * S, 100 * S),), a2=((20 * S, 100 * S),))).run(40 * S)
    assert world.moves(0, 20 * S)[-1] == "a2"
    assert world.moves(20 * S) == ["a3"]
    assert world.first_move(20 * S) <= 20 * S + 700 * MS


def test_a_lost_circuit_is_replaced_at_once_by_an_open_one() -> None:
    world = World(ways(cuts=((10 * S, 100 * S),)))
    world.lose(20 * S, "a2").run(30 * S)
    assert world.moves(20 * S)[0] == "a3"
    assert world.first_move(20 * S) == 20 * S


@pytest.mark.parametrize("paths", [("auto",), ("warm",)])
def test_a_stopped_receiver_keeps_its_path(paths: tuple[str, ...]) -> None:
    world = World(ways(), paths, held=((10 * S, 15 * S), (20 * S, 20 * S + 400 * MS), (30 * S, 33 * S))).run(60 * S)
    assert not world.moves()


@pytest.mark.parametrize("paths", [("auto",), ("warm",)])
@pytest.mark.parametrize("seed", range(5))
def test_a_receiver_blocked_by_user_code_keeps_its_path(seed: int, paths: tuple[str, ...]) -> None:
    held = [(n * 550 * MS, n * 550 * MS + 500 * MS) for n in range(10, 100)]
    world = World(ways(), paths, seed=seed, held=held).run(60 * S)
    assert not world.moves()


def test_a_delayed_sender_does_not_suspect_its_path() -> None:
    asleep = [(n * 900 * MS, n * 900 * MS + 600 * MS) for n in range(10, 60)]
    world = World(ways(), asleep=asleep).run(60 * S)
    assert not world.moves()
    assert not world.dials()


def test_an_unstable_path_is_trusted_ever_less() -> None:
    cuts = [(n * 6 * S, n * 6 * S + 3 * S) for n in range(1, 40)]
    world = World(ways(cuts=cuts)).run(240 * S)
    assert len(world.moves(120 * S)) <= 8
    assert world.share("a2", 60 * S, 240 * S) >= 0.8


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("up_s", [1, 2, 3])
def test_rows_do_not_return_to_a_path_that_works_for_seconds_at_a_time(seed: int, up_s: int) -> None:
    cuts = [(n * (3 + up_s) * S, (n * (3 + up_s) + 3) * S) for n in range(2, 30)]
    world = World(ways(cuts=cuts), seed=seed).run(80 * S)
    assert len(world.moves()) == 1


def test_a_thin_path_is_remembered_as_thin() -> None:
    world = World(ways(rate=250_000), rate=500).run(180 * S)
    assert len(world.moves(60 * S)) <= 12
    assert world.share("", 60 * S, 180 * S) <= 0.1


def test_all_paths_are_cut_and_heal() -> None:
    cut = ((10 * S, 30 * S),)
    world = World(ways(cuts=cut, a2=cut, a3=cut)).run(60 * S)
    assert world.first_move(30 * S) <= 32 * S
    assert world.machine.since is None
    assert not [effect for _, effect in world.log if isinstance(effect, AbandonRoute)]


def test_a_path_that_never_heals_is_given_up_once() -> None:
    cut = ((S, 10**15),)
    world = World(ways(cuts=cut, a2=cut, a3=cut)).run(3 * PATIENCE_NS)
    (given_up,) = [at for at, effect in world.log if isinstance(effect, AbandonRoute)]
    assert PATIENCE_NS <= given_up <= PATIENCE_NS + 4 * S
    assert not [at for at in world.dials() if at > given_up]


def test_direct_never_uses_relays() -> None:
    world = World(ways(cuts=((10 * S, 30 * S),)), ("direct",)).run(50 * S)
    assert not any(effect.max_relays for _, effect in world.log if isinstance(effect, DialCircuit))
    assert not any(world.moves(0, 30 * S))
    assert world.first_move(30 * S) <= 31 * S


def test_a_pinned_path_is_the_only_one() -> None:
    there = ways(a2=((10 * S, 20 * S),))
    del there["a3"], there[""]
    world = World(there, ("a2",)).run(40 * S)
    assert all(effect.max_relays for _, effect in world.log if isinstance(effect, DialCircuit))
    assert world.moves(20 * S)[-1] == "a2"
    assert world.first_move(20 * S) <= 22 * S


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_decisions(seed: int) -> None:
    logs = [World(ways(lossy=((5 * S, 20 * S),)), seed=seed).run(30 * S).log for _ in range(2)]
    assert logs[0] == logs[1]
    assert any(isinstance(effect, SwitchCircuit) for _, effect in logs[0])


def slow_direct(*spans: tuple[int, int], relay_ms: int = 10) -> dict[str, SimulatedPath]:
    """A direct path that is slow in these spans, but too little for a suspicion, beside a relay."""
    return {"": SimulatedPath(5 * MS, slow=spans, slow_ns=45 * MS), "a2": SimulatedPath(relay_ms * MS)}


@pytest.mark.parametrize("seed", range(5))
def test_rows_leave_a_slow_path_for_a_promised_faster_one_and_return(seed: int) -> None:
    world = World(slow_direct((20 * S, 60 * S)), seed=seed, promise=lambda _: 4.0).run(120 * S)
    assert world.first_move(20 * S) <= 25 * S
    assert world.share("a2", 25 * S, 60 * S) == 1.0
    assert world.share("", 90 * S, 120 * S) == 1.0


@pytest.mark.parametrize("seed", range(5))
def test_a_false_promise_moves_no_rows_and_costs_few_trials(seed: int) -> None:
    world = World(slow_direct((0, 200 * S), relay_ms=48), seed=seed, promise=lambda _: 1.0).run(200 * S)
    assert not world.moves()
    assert len(world.connections) == 1
    assert len([at for at in world.dials() if at > 10 * S]) <= 4


def test_without_a_promise_a_slow_path_is_kept() -> None:
    world = World(slow_direct((0, 60 * S)), promise=lambda _: 1e6).run(60 * S)
    assert not world.moves()


@pytest.mark.parametrize("seed", range(5))
def test_rows_move_at_most_twice_a_minute_over_a_path_that_flaps(seed: int) -> None:
    flaps = tuple((at * S, (at + 10) * S) for at in range(10, 160, 20))
    world = World(slow_direct(*flaps), seed=seed, promise=lambda _: 4.0).run(180 * S)
    for minute in range(10, 120, 10):
        assert len(world.moves(minute * S, (minute + 60) * S)) <= 2, minute


@pytest.mark.parametrize(("period", "slow_ms"), [(10, 150), (20, 150), (15, 60), (7, 200), (35, 150)])
def test_a_slow_path_that_flaps_is_left_after_its_hold_and_then_distrusted(period: int, slow_ms: int) -> None:
    paths = slow_direct(*((at * S, (at + period) * S) for at in range(10, 300, 2 * period)))
    paths[""].slow_ns = slow_ms * MS
    world = World(paths, promise=lambda _: 4.0).run(320 * S)
    assert world.moves(), "the slow path is left at first"
    for begin in range(0, 260, 5):
        assert len(world.moves(begin * S, (begin + 60) * S)) <= 2, begin
    assert world.share("a2", 100 * S, 300 * S) >= 0.5


def test_a_return_is_held_for_a_minute() -> None:
    trial = FasterPathTrial(0, is_allowed=True)
    assert not trial.is_held(0)
    trial.moved(10 * S, is_return=True)
    assert trial.is_held(69 * S)
    trial.moved(69 * S, is_return=False)
    assert not trial.is_held(70 * S)


def test_a_full_window_is_probed_and_leaves_a_path_that_no_acknowledgement_comes_back_by() -> None:
    healthy = World(ways(), full_from=10 * S).run(30 * S)
    assert not healthy.moves()
    assert 10 <= healthy.probes(10 * S, 30 * S) <= 21
    world = World(ways(cuts=((11 * S, 60 * S),)), full_from=10 * S).run(30 * S)
    assert world.first_move(11 * S) <= 15 * S


def test_a_held_path_that_stops_answering_is_left() -> None:
    world = World(ways(cuts=((10 * S, 20 * S), (40 * S, 60 * S)))).run(80 * S)
    assert 40 * S < world.first_move(40 * S) <= 42 * S
    assert world.share("", 43 * S, 60 * S) == 0


@pytest.mark.parametrize("paths", [("direct",), ("a2",)])
def test_pinned_paths_ask_for_no_promise(paths: tuple[str, ...]) -> None:
    world = World(slow_direct((0, 30 * S)), paths, promise=lambda _: 1.0).run(30 * S)
    assert not any(isinstance(effect, RequestPromise) for _, effect in world.log)


def test_a_link_is_in_full_use_only_while_bytes_wait_for_it() -> None:
    circuit = Circuit(1, 0, "", 0, 0, 0)
    for tick in range(200):
        circuit.look(CircuitReading(1, tick, acknowledged=tick * 5_000, queued=200_000), tick * 50 * MS)
    assert circuit.use > 0.9
    held = circuit.use
    for tick in range(200, 400):
        reading = CircuitReading(1, tick, acknowledged=tick * 5_000, queued=200_000, held_us=tick * 50_000)
        circuit.look(reading, tick * 50 * MS)
    assert circuit.use < 0.1 < held, "the process at the end does not read: the link is not the limit"
    for tick in range(400, 600):
        circuit.look(CircuitReading(1, tick, acknowledged=tick * 5_000, queued=1_000), tick * 50 * MS)
    assert circuit.use < 0.01


@pytest.mark.parametrize(
    ("rate", "waiting", "round_trip_ms", "is_full"),
    [(100_000, 30_000, 300, False), (100_000, 30_000, 30, True), (4_000, 3_500, 30, True), (4_000, 1_400, 30, False)],
)
def test_bytes_in_flight_do_not_wait_and_few_fill_a_thin_link(
    rate: int, waiting: int, round_trip_ms: int, is_full: bool
) -> None:
    circuit = Circuit(1, 0, "", 0, 0, 0)
    for tick in range(200):
        reading = CircuitReading(1, tick, 0, tick * rate // 20, waiting, 0, round_trip_ms * 1_000)
        circuit.look(reading, tick * 50 * MS)
    assert (circuit.use > 0.9, circuit.use < 0.01) == (is_full, not is_full)
