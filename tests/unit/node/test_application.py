"""The application's record and the pure parts of forming."""

import msgspec
import pytest

from agiledart_dataflow.plan.deployment import InstancePlace
from agiledart_kernel.frames import application_number
from agiledart_kernel.instants import SECOND, Duration, Instant
from agiledart_kernel.limits import MAX_RECORD_BYTES
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.display_names import display_names
from agiledart_node.forming.formation import JoinSoftState, is_path, junctions, merged_tree, waves
from agiledart_node.records.application import (
    FINAL,
    MAX_CHANGES,
    MAX_CHANGES_BYTES,
    MAX_HISTORY,
    NEXT_STATES,
    RECORD_CODEC,
    ApplicationRecord,
    HistoryEntry,
    StageEntry,
    advanced,
    instances_text,
    kept_changes,
    listed,
    waiting_for_capacity,
)
from agiledart_node.wire.change_responses import ChangeRow


def peer(hexes: str, name: str = "") -> Peer:
    return Peer(NodeId.from_hex(hexes), 1, name or hexes)


def record(state: str = "deploying", **fields: object) -> ApplicationRecord:
    made = ApplicationRecord("app", 1, application_number("app", 1, 7), 7, state, peer("a"))
    return msgspec.structs.replace(made, **fields)


@pytest.mark.parametrize("state", NEXT_STATES)
@pytest.mark.parametrize("wanted", NEXT_STATES)
def test_every_pair_of_states_follows_the_table(state: str, wanted: str) -> None:
    after = advanced(record(state), wanted, "because", 5)
    if wanted in NEXT_STATES[state]:
        assert after is not None
        assert (after.state, after.reason, after.changed_ms) == (wanted, "because", 5)
        assert after.history[-1] == HistoryEntry(5, wanted, "because")
    else:
        assert after is None
    assert (not NEXT_STATES[state]) == (state in FINAL)


def test_history_keeps_the_first_entry_and_its_limit() -> None:
    full = record(history=tuple(HistoryEntry(i, "deploying", str(i)) for i in range(MAX_HISTORY)))
    waiting = waiting_for_capacity(full, "no node has room", 9)
    assert waiting is not None
    assert (waiting.state, waiting.reason) == ("deploying", "waiting for capacity: no node has room")
    assert (len(waiting.history), waiting.history[0].text, waiting.history[-1].at_ms) == (MAX_HISTORY, "0", 9)
    assert waiting_for_capacity(record("stopped"), "no node has room", 9) is None
    after = advanced(full, "running", "", 99)
    assert after is not None
    assert len(after.history) == MAX_HISTORY
    assert after.history[0].text == "0"
    assert after.history[1].text == "2"


def test_reasons_are_bounded() -> None:
    after = advanced(record(), "failed", "x" * 100_000, 0)
    assert after is not None
    assert len(after.reason) == 4_096


def test_a_record_of_the_largest_plan_fits() -> None:
    stages = tuple(StageEntry(f"stage-{i}" * 3, 16) for i in range(256))
    places = tuple(InstancePlace(stage, index, index % 128) for stage in range(256) for index in range(16))
    nodes = tuple(Peer(NodeId(i << 100), 1, f"node-{i}", "192.168.100.100:9464", "zone", "host") for i in range(128))
    path = nodes[:5]
    large = record(
        stages=stages,
        assignment=places,
        nodes=nodes,
        paths=(path,) * 64,
        specification=b"s" * (MAX_RECORD_BYTES // 2),
        plan=b"p" * 100_000,
    )
    assert large.is_consistent()
    assert len(RECORD_CODEC.encode(large)) < MAX_RECORD_BYTES


def test_inconsistent_records_are_detected() -> None:
    assert not record(assignment=(InstancePlace(0, 0, 0),)).is_consistent()
    assert not record(state="flying").is_consistent()
    assert not record(edges=((0, 1),)).is_consistent()


def test_instances_of_a_node_are_described_by_step_names() -> None:
    a, b = peer("a", "pi1"), peer("b", "pi3")
    held = record(
        nodes=(a, b),
        stages=(StageEntry("trips", 1, "source"), StageEntry("route_of", 4), StageEntry("busiest-routes", 1)),
        assignment=(
            InstancePlace(0, 0, 0),
            *(InstancePlace(1, index, int(index > 1)) for index in range(4)),
            InstancePlace(2, 0, 1),
        ),
    )
    assert instances_text(held, b.node) == "route_of 2 and 3, busiest-routes"
    assert held.placement == {"trips": ["pi1"], "route_of": ["pi1", "pi1", "pi3", "pi3"], "busiest-routes": ["pi3"]}
    assert held.hosts() == (a, b)


def test_names_that_collide_get_the_first_digits_of_the_id() -> None:
    shown = display_names(
        (peer("aa11", "pi"), peer("bb22", "pi"), peer("cc33", "pj"), peer("cc33", "pj"), Peer(NodeId(1 << 96)))
    )
    assert list(shown.values()) == ["pi-aa110000", "pi-bb220000", "pj", "node-00000001"]


def test_lists_are_joined_as_in_english() -> None:
    assert [listed([]), listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == [
        "nothing",
        "a",
        "a and b",
        "a, b and c",
    ]


FIGURE = (
    tuple(map(peer, ("75A342", "D4A8A1", "D45342", "D45A55", "D45A35", "D45A3C"))),
    tuple(map(peer, ("1564A6", "D45342", "D45A55", "D45A35", "D45A3C"))),
)


def test_the_papers_figure_gives_a_tree_with_one_junction() -> None:
    assert merged_tree(FIGURE) == FIGURE
    assert junctions(FIGURE) == (peer("D45342").node,)


def test_paths_that_met_stay_merged() -> None:
    a, b, c, d, e, sink = map(peer, "abcdef")
    merged = merged_tree(((a, b, c, sink), (d, b, e, sink)))
    assert merged == ((a, b, c, sink), (d, b, c, sink))
    assert junctions(merged) == (b.node,)


@pytest.mark.parametrize(
    ("path", "good"), [("abc", True), ("a", False), ("abac", False), ("bc", False), ("ab", False), ("", False)]
)
def test_only_simple_paths_from_source_to_sink_count(path: str, good: bool) -> None:
    assert is_path(tuple(map(peer, path)), peer("a").node, peer("c").node) is good


def test_waves_go_from_sinks_to_sources() -> None:
    assert waves(4, ((0, 1), (1, 2), (2, 3))) == [[3], [2], [1], [0]]
    assert waves(5, ((0, 2), (1, 2), (2, 3), (2, 4), (3, 4))) == [[4], [3], [2], [0, 1]]
    with pytest.raises(ValueError, match="cycle"):
        waves(2, ((0, 1), (1, 0)))


def test_soft_state_marks_junctions_and_expires() -> None:
    state = JoinSoftState(Duration(60 * SECOND))
    a, b, onward, sink = (NodeId(n) for n in range(4))
    assert not state.passed(1, sink, a, onward, Instant(0)).is_junction
    assert state.passed(1, sink, b, onward, Instant(30 * SECOND)).is_junction
    state.forget_old(Instant(80 * SECOND))
    assert state.forwarders
    state.forget_old(Instant(91 * SECOND))
    assert not state.forwarders


def test_numbers_of_runs_differ_by_name_version_and_ticket() -> None:
    numbers = [
        application_number(name, version, ticket) for name in ("a", "b") for version in (1, 2, 11) for ticket in (1, 2)
    ]
    assert len(set(numbers)) == 12
    assert all(0 <= number < 1 << 64 for number in numbers)


def test_a_record_keeps_the_newest_changes_that_fit() -> None:
    few = [
        ChangeRow("areas", generation, 1, 2, "scale", "asked by ann", "done", "", 3, 64, 1.5, 20.0)
        for generation in range(1, 4)
    ]
    assert [one["generation"] for one in kept_changes(few)] == [1, 2, 3]
    assert msgspec.convert(kept_changes(few)[0], ChangeRow) == few[0]
    many = [
        ChangeRow("areas", generation, 1, 2, "scale", "r" * 400, "let-go", "w" * 400, 0, 0, 1.5)
        for generation in range(1, 201)
    ]
    kept = kept_changes(many)
    assert [one["generation"] for one in kept] == list(range(201 - len(kept), 201)), "oldest first, the last of them"
    assert 20 < len(kept) <= MAX_CHANGES
    assert len(msgspec.msgpack.encode(kept)) <= MAX_CHANGES_BYTES + 8
