"""Each fault that may hit a message happens, is counted, and ends on request."""

from itertools import pairwise

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.world.network import Network, NetworkConfig

A, B, C = NodeId(1), NodeId(2), NodeId(3)


def network(**figures: float) -> Network:
    made = Network(NetworkConfig(jitter_ns=0, **figures), RandomStream(1, "network"))  # type: ignore[arg-type]
    for node in (A, B, C):
        made.place(node)
    return made


def survivors(net: Network, count: int = 2_000, source: NodeId = A, target: NodeId = B, gap: int = MILLISECOND) -> int:
    return sum(bool(net.arrivals(source, target, number * gap)) for number in range(count))


def test_bursts_lose_several_in_a_row_on_one_link() -> None:
    net = network(burst_start=0.02, burst_end=0.25)
    fates = [bool(net.arrivals(A, B, number * MILLISECOND)) for number in range(5_000)]
    lost = fates.count(False)
    assert 0.03 < lost / 5_000 < 0.13, "p/(p+r) = 7.4 %"
    runs = sum(1 for before, now in pairwise(fates) if before and not now)
    assert lost / runs > 2, "independent losses of 7 % come alone"
    assert net.reached["burst"] == lost


def test_a_spike_delays_all_messages_behind_it() -> None:
    net = network(spike=0.02, spike_ns=SECOND)
    arrivals = [net.arrivals(A, B, number * MILLISECOND)[0] for number in range(1_000)]
    assert arrivals == sorted(arrivals)
    assert max(at - number * MILLISECOND for number, at in enumerate(arrivals)) > SECOND // 2


def test_bandwidth_delays_and_then_loses() -> None:
    net = network(host_rate=1_000_000, queue_bytes=10_000)
    first = net.arrivals(A, B, 0, 1_000)[0]
    assert first - net.distance_ns(A, B) == 2 * MILLISECOND, "1 kB at 1 MB/s, out and in"
    fates = [bool(net.arrivals(A, B, 0, 1_000)) for _ in range(50)]
    assert 8 <= fates.count(True) <= 11
    assert net.reached["queue"] == fates.count(False)
    assert net.arrivals(A, C, SECOND, 1_000), "the queue is empty again"
    thin = network(link_rate=1_000_000)
    alone = thin.arrivals(A, B, 0, 1_000)[0] - thin.distance_ns(A, B)
    other = thin.arrivals(A, C, 0, 1_000)[0] - thin.distance_ns(A, C)
    assert alone == other == MILLISECOND, "each link has its own"


def test_a_held_link_delivers_everything_when_it_is_released() -> None:
    net = network()
    net.hold(A, B, SECOND)
    assert net.arrivals(A, B, 0) == (SECOND,)
    assert net.arrivals(A, B, MILLISECOND) == (SECOND,)
    assert net.arrivals(B, A, 0)[0] < SECOND
    assert net.arrivals(A, B, 2 * SECOND)[0] > 2 * SECOND


def test_cuts_may_be_in_one_direction() -> None:
    net = network()
    net.mute(A)
    assert (net.is_cut(A, B), net.is_cut(B, A)) == (True, False)
    net.deafen(A)
    assert net.is_cut(B, A)
    net.restore(A)
    assert not net.is_cut(A, B)
    assert not net.is_cut(B, A)
    net.clog(A, B)
    net.mute(C)
    net.heal(but=(C,))
    assert (net.is_cut(A, B), net.is_cut(C, B)) == (False, True)
    net.partition((A,), (B,))
    assert net.is_cut(A, B)
    assert net.is_cut(A, C)
    net.partition()
    assert not net.is_cut(A, B)


def test_idle_links_are_forgotten() -> None:
    """A node that talked to thousands once keeps a bounded number of links."""
    net = network()
    for number in range(5_000):
        other = NodeId(100 + number)
        net.place(other)
        net.arrivals(A, other, number * SECOND // 10)
    assert len(net._links[A]) < 450
    assert net.has_link(A, NodeId(100 + 4_999))
    assert not net.has_link(A, NodeId(100))


def test_reordered_messages_overtake() -> None:
    net = network(reorder=0.5)
    arrivals = [net.arrivals(A, B, number * MILLISECOND)[0] for number in range(200)]
    assert arrivals != sorted(arrivals)
