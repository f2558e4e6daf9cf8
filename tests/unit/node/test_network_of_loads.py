"""Network out of loads: measured halves, guesses of sure coordinates only, and notes in place of invented figures."""

import msgspec
import pytest

from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.coordinates import Coordinate
from agiledart_kernel.labels import MAX_LABEL, MAX_LABELS, is_label
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.forming.network_of_loads import UNKNOWN_MS, Loads, network_of_loads
from agiledart_node.wire.formation_messages import MAX_ROUND_TRIPS, NodeLoad, RoundTrip
from agiledart_placement.files.network_file import network_document, read_network
from agiledart_placement.problem.network_view import FigureSource

SURE = Coordinate(10_000, 0, 0, 1_000, 100_000)


def load(*trips: tuple[int, int], **fields: object) -> NodeLoad:
    """A load with round trips (node, µs)."""
    plain = NodeLoad(1, 2, ("app",), 8, 1, False, (), round_trips=tuple(RoundTrip(NodeId(n), us) for n, us in trips))
    return msgspec.structs.replace(plain, **fields)


def of(*loads: NodeLoad) -> Loads:
    """Loads of n1, n2 …"""
    return {NodeId(n): (Peer(NodeId(n), 1, f"n{n}", zone="attic"), each) for n, each in enumerate(loads, 1)}


def test_a_link_has_half_the_mean_of_its_ends_round_trips() -> None:
    network = network_of_loads(of(load((2, 4_000)), load((1, 6_000))))
    figures = network.view.link(NodeId(1), NodeId(2))
    assert (figures.delay_ms, figures.source) == (2.5, FigureSource.MEASURED)
    assert network.view.link(NodeId(2), NodeId(1)) == figures


def test_a_pair_without_a_round_trip_has_the_guess_of_two_sure_nodes() -> None:
    far = Coordinate(50_000, 0, 0, 3_000, 500_000)
    network = network_of_loads(of(load(coordinate=SURE), load(coordinate=far)))
    figures = network.view.link(NodeId(1), NodeId(2))
    assert (figures.delay_ms, figures.source) == (22.0, FigureSource.ESTIMATED)  # (40 ms + both heights) ÷ 2


@pytest.mark.parametrize("unsure", [None, Coordinate(1, 1, 1, 1, 500_001), Coordinate(1, 1, 1, 0, 1)])
def test_a_node_with_an_unknown_pair_is_left_out_and_named(unsure: Coordinate | None) -> None:
    loads = of(load((2, 900), coordinate=SURE), load(coordinate=SURE), load(coordinate=unsure))
    network = network_of_loads(loads)
    assert [state.name for state in network.hosts.values()] == ["n1", "n2"]
    assert network.notes[0] == "n3 is left out: no node has measured its delay to n1 yet"


def test_hosts_have_the_reported_figures_and_a_note_names_the_rest() -> None:
    told = load((2, 1_000), cores=4, speed_permille=500, busy_permille=250, free_memory_mb=300, labels=("gpu",))
    network = network_of_loads(of(told, load()))
    first, second = network.hosts.values()
    assert (first.resources, first.used) == ({"slots": 8, "cores": 4, "memory_mb": 300}, {"slots": 2, "cores": 1})
    assert (first.speed, first.offers, first.zone) == (0.5, ("gpu",), "attic")
    assert (second.resources, second.speed) == ({"slots": 8}, 1.0)
    assert "n2: speed is not measured and counts as 1" in network.notes


def test_its_document_is_read_again() -> None:
    network = network_of_loads(of(load((2, 1_000), labels=("gpu",), speed_permille=500), load()))
    again = read_network(network_document(network), "live")
    assert [(s.name, s.offers, s.speed) for s in again.hosts.values()] == [("n1", ("gpu",), 0.5), ("n2", (), 1.0)]
    assert again.view.link(again.ids["n1"], again.ids["n2"]).delay_ms == 0.5


def test_new_fields_take_less_than_a_kilobyte_and_older_nodes_read_the_rest() -> None:
    trips = [(1 << 127 | n, 40_000) for n in range(MAX_ROUND_TRIPS)]
    full = load(*trips, cores=64, speed_permille=1_000, busy_permille=500, free_memory_mb=64_000, coordinate=SURE,
                labels=("gpu", "camera"))  # fmt: skip
    assert len(encode(full)) - len(encode(load())) <= 1_000
    fields = msgspec.msgpack.decode(encode(full))
    older: NodeLoad = Codec(NodeLoad).decode(
        msgspec.msgpack.encode(fields[:-9])
    )  # as a node of the version before sends it
    assert (older.round_trips, older.cores, older.capacity) == ((), 0, 8)


@pytest.mark.parametrize(("text", "is_one"), [("gpu", True), ("room.2_a-b", True), ("", False), ("a b", False),
                                              ("-a", False), ("é", False), ("x" * (MAX_LABEL + 1), False)])  # fmt: skip
def test_labels_are_plain_words(text: str, is_one: bool) -> None:
    assert is_label(text) is is_one
    assert MAX_LABELS == 16


def test_nodes_with_unknown_pairs_stay_where_only_some_pairs_matter() -> None:
    loads = of(load((2, 900), coordinate=SURE), load(coordinate=SURE), load((1, 700)))
    network = network_of_loads(loads, keeps_unknown=True)
    assert (len(network.hosts), [note for note in network.notes if "left out" in note]) == (3, [])
    assert network.view.link(NodeId(1), NodeId(3)).delay_ms == 0.35
    unknown = network.view.link(NodeId(3), NodeId(2))
    assert (unknown.delay_ms, unknown.source) == (UNKNOWN_MS, FigureSource.UNKNOWN)
