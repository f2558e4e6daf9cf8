"""Two values of one record are merged by their contents, in any order of arrival."""

from itertools import permutations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_dataflow.plan.deployment import InstancePlace
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.records.application import (
    MAX_HISTORY,
    MAX_RIVALS,
    NAMES_CODEC,
    PEER_CODEC,
    RECORD_CODEC,
    ApplicationRecord,
    HistoryEntry,
    Rival,
    StageEntry,
    advanced,
    application_key,
    catalogue_key,
    node_name_key,
)
from agiledart_node.records.merged_applications import (
    APPLICATIONS,
    merged_applications,
    merged_history,
    merged_rivals,
)
from agiledart_node.records.record_kind import NAMES, NODE_NAMES, merge_of
from agiledart_node.records.sink_directory import SINK_CODEC, SINKS, SinkRecord, sink_key
from agiledart_node.scheduling.claims import CLAIM_CODEC, CLAIMS, Claim, scheduler_slot_key
from agiledart_node.scheduling.messages import SchedulerSlot
from agiledart_overlay.records.record_store import Record, RecordStore, merged

HOST, OTHER = Peer(NodeId(1), 1, "a1"), Peer(NodeId(2), 1, "a2")
MERGE = merge_of((APPLICATIONS, SINKS, NAMES, NODE_NAMES, CLAIMS))
WRITER = (NodeId(1), 1, 1)


def deployed(**fields: object) -> ApplicationRecord:
    made = ApplicationRecord(
        "app", 1, 77, 7, "deploying", HOST, stages=(StageEntry("s", 1),), history=(HistoryEntry(1, "deploying", ""),)
    )
    return msgspec.structs.replace(made, **fields)


def running() -> ApplicationRecord:
    runs = advanced(deployed(), "running", "", 2)
    assert runs is not None
    return msgspec.structs.replace(runs, coordinator=HOST, nodes=(HOST,), assignment=(InstancePlace(0, 0, 0),))


def step(record: ApplicationRecord, state: str, reason: str, at: int, *, heard: bool = False) -> ApplicationRecord:
    after = advanced(record, state, reason, at, is_unverified=heard)
    assert after is not None
    return after


def test_an_end_reported_by_the_coordinator_wins_and_both_histories_stay() -> None:
    heard = step(running(), "failed", "a1 is gone", 5, heard=True)
    ended = msgspec.structs.replace(
        step(running(), "finished", "", 9), summary={"records_in": 3}, changes=({"stage": "a"},)
    )
    for one, other in permutations((heard, ended)):
        both = merged_applications(one, other)
        assert (both.state, both.is_unverified, both.reason, both.summary) == ("finished", False, "", {"records_in": 3})
        assert both.changes == ({"stage": "a"},)
        assert [(entry.state, entry.text) for entry in both.history] == [
            ("deploying", ""), ("running", ""), ("failed", "a1 is gone"), ("finished", ""),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        (deployed(), running()),
        (running(), step(running(), "failed", "heard", 5, heard=True)),
        (step(running(), "failed", "heard", 5, heard=True), step(running(), "failed", "a2 raised", 4)),
        (step(running(), "failed", "a2 raised", 9), step(running(), "stopped", "by a user", 4)),
        (step(running(), "stopped", "by a user", 9), step(running(), "finished", "", 4)),
        (running(), step(running(), "finished", "", 4)),
        (
            step(running(), "failed", "heard", 5, heard=True),
            step(step(running(), "failed", "heard", 5, heard=True), "running", "it runs", 8),
        ),
    ],
)
def test_the_stronger_claim_wins_in_either_order(weaker: ApplicationRecord, stronger: ApplicationRecord) -> None:
    for one, other in permutations((weaker, stronger)):
        both = merged_applications(one, other)
        assert (both.state, both.is_unverified, both.reason) == (
            stronger.state,
            stronger.is_unverified,
            stronger.reason,
        )
        assert {*weaker.history, *stronger.history} == {*both.history}


def test_gossip_is_superseded_only_by_first_hand_reports() -> None:
    heard = step(running(), "failed", "a1 is gone", 5, heard=True)
    assert heard.is_final
    assert advanced(heard, "failed", "me too", 6, is_unverified=True) is None
    revived = step(heard, "running", "it runs", 6)
    assert (revived.state, revived.reason, revived.is_unverified, revived.revivals) == ("running", "", False, 1)
    for state in ("finished", "failed", "stopped"):
        said = step(heard, state, "", 6)
        assert (said.state, said.is_unverified) == (state, False)
        assert all(advanced(said, later, "", 7) is None for later in ("running", "finished", "failed", "stopped"))


def test_gossip_about_an_end_does_not_remove_where_the_run_is_placed() -> None:
    both = merged_applications(running(), step(deployed(), "failed", "a9 is gone", 3, heard=True))
    assert (both.state, both.is_unverified) == ("failed", True)
    assert (both.coordinator, both.nodes, both.assignment) == (HOST, (HOST,), (InstancePlace(0, 0, 0),))


def test_a_value_that_follows_the_other_is_unchanged() -> None:
    record = deployed()
    for state, heard in (("running", False), ("failed", True), ("running", False), ("finished", False)):
        later = step(record, state, "why", 3, heard=heard)
        assert merged_applications(record, later) is later
        assert merged_applications(later, record) is later
        record = later
    shared = msgspec.structs.replace(record, shared_keys=(b"k" * 32,))
    assert merged_applications(record, shared) is shared


def test_of_two_runs_with_one_name_one_has_the_record_and_names_the_other() -> None:
    one, other = running(), msgspec.structs.replace(running(), number=3, submitted_to="a9")
    for pair in permutations((one, other)):
        both = merged_applications(*pair)
        assert (both.number, [(rival.number, rival.state) for rival in both.rivals]) == (3, [(77, "running")])
        after = merged_applications(both, step(one, "finished", "", 9))
        assert [(rival.number, rival.state) for rival in after.rivals] == [(77, "finished")]
        assert merged_applications(after, one) is after
    second = msgspec.structs.replace(deployed(), version=2, number=900)
    assert merged_applications(step(one, "failed", "", 3), second) is second, (
        "an earlier version that was over is no rival"
    )


def test_a_run_presumed_dead_stays_named_when_another_run_has_its_name() -> None:
    heard = step(running(), "failed", "a1 is gone", 5, heard=True)
    second = msgspec.structs.replace(
        deployed(), version=2, number=900, rivals=(Rival(77, 1, "failed", "a1 is gone", "a1", 5, is_unverified=True),)
    )
    for pair in permutations((step(running(), "finished", "", 9), second)):
        both = merged_applications(*pair)
        assert (both.version, [(rival.number, rival.state) for rival in both.rivals]) == (2, [(77, "finished")])
    assert merged_applications(heard, second) is second


def test_rivals_and_histories_are_bounded() -> None:
    rivals = tuple(Rival(number, 1, "running", "", "a1") for number in range(MAX_RIVALS))
    more = tuple(Rival(number, 1, "running", "", "a1") for number in range(4, MAX_RIVALS + 4))
    assert merged_rivals(rivals, more) == rivals
    assert merged_rivals(more, rivals) == rivals
    ours = tuple(HistoryEntry(at, "running", "ours") for at in range(0, 2 * MAX_HISTORY, 2))
    theirs = tuple(HistoryEntry(at, "running", "theirs") for at in range(1, 2 * MAX_HISTORY, 2))
    both = merged_history(ours, theirs)
    assert (len(both), both[0], both[-1]) == (MAX_HISTORY, ours[0], ours[-1])
    assert merged_history(both, theirs) == both


RECORDS = st.recursive(
    st.sampled_from([deployed(), running(), msgspec.structs.replace(running(), number=3)]),
    lambda records: st.builds(
        lambda record, state, at, heard: (
            advanced(record, state, f"{state} {at}", at, is_unverified=heard and state == "failed") or record
        ),
        records,
        st.sampled_from(["running", "finished", "failed", "stopped"]),
        st.integers(2, 9),
        st.booleans(),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(RECORDS, st.integers(1, 6)), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_replica_nodes_that_exchange_values_converge(held: list[tuple[ApplicationRecord, int]], draw: object) -> None:
    """Whatever copies there are and in whatever order they meet: after a few rounds all have one value, and it stays."""
    key = application_key("app")
    stores = []
    for record, version in held:
        store = RecordStore(1 << 20, MERGE)
        assert store.keep(Record(key, version, RECORD_CODEC.encode(record), WRITER))
        stores.append(store)
    strongest = max(record.state == "finished" for record, _ in held)
    for _ in range(12):
        order = list(range(len(stores)))
        draw.shuffle(order)  # type: ignore[attr-defined]
        for source in order:
            for target in order:
                copy = stores[source].get(key)
                assert copy is not None
                assert stores[target].keep(copy)
    kept = {store.rank(key) for store in stores}
    assert len(kept) == 1
    last = stores[0].get(key)
    assert last is not None
    agreed = RECORD_CODEC.decode(last.value)
    if strongest:
        ends = {agreed.state, *(rival.state for rival in agreed.rivals)}
        assert "finished" in ends
    seen = []
    for _ in range(2):  # a late copy may add to the report about another run, but once
        for record, version in held:
            assert stores[0].keep(Record(key, version, RECORD_CODEC.encode(record), WRITER))
        seen.append(stores[0].rank(key))
    assert seen[0] == seen[1]


def test_a_merged_value_is_a_new_version() -> None:
    """A reader of one of the two cannot overwrite the other."""
    key = application_key("app")
    ended = Record(key, 3, RECORD_CODEC.encode(step(running(), "finished", "", 9)), (NodeId(3), 1, 1))
    heard = Record(key, 5, RECORD_CODEC.encode(step(running(), "failed", "gone", 5, heard=True)), (NodeId(5), 1, 1))
    for one, other in permutations((ended, heard)):
        both = merged(one, other, MERGE)
        assert (both.version, RECORD_CODEC.decode(both.value).state) == (6, "finished")
    equal = Record(key, 3, RECORD_CODEC.encode(running()), (NodeId(3), 1, 2))
    assert merged(ended, equal, MERGE).version == merged(equal, ended, MERGE).version == 4


def test_an_unreadable_value_loses_and_values_of_unknown_kind_go_by_version() -> None:
    key, right = application_key("app"), RECORD_CODEC.encode(running())
    assert MERGE(key, right, b"\xff") == MERGE(key, b"\xff", right) == right
    assert MERGE(key, RECORD_CODEC.encode(deployed(name="another")), right) == right, "of another key"
    assert MERGE(NodeId(5), right, b"?") is None


def test_merge_unites_names_and_prefers_later_logs_and_incarnations() -> None:
    a, b = NAMES_CODEC.encode(("a", "b")), NAMES_CODEC.encode(("b", "c"))
    assert MERGE(catalogue_key("a"), a, b) == MERGE(catalogue_key("a"), b, a) == NAMES_CODEC.encode(("a", "b", "c"))
    early = SINK_CODEC.encode(SinkRecord("l", "app", 1, HOST, 50, "id", b"", 1))
    late = SINK_CODEC.encode(SinkRecord("l", "app", 2, OTHER, 60, "id", b"", 1))
    back = SINK_CODEC.encode(SinkRecord("l", "app", 3, msgspec.structs.replace(OTHER, incarnation=2), 40, "id", b"", 1))
    for one, other, right in ((early, late, late), (late, back, back)):
        assert MERGE(sink_key("l"), one, other) == MERGE(sink_key("l"), other, one) == right
    first, second = PEER_CODEC.encode(HOST), PEER_CODEC.encode(msgspec.structs.replace(HOST, incarnation=2))
    assert MERGE(node_name_key("a1"), first, second) == MERGE(node_name_key("a1"), second, first) == second


def test_of_two_claims_the_later_term_counts() -> None:
    key = scheduler_slot_key("z", 0)
    older = CLAIM_CODEC.encode(Claim(SchedulerSlot("z", 0, 1), HOST))
    ours, theirs = (CLAIM_CODEC.encode(Claim(SchedulerSlot("z", 0, 2), winner)) for winner in (HOST, OTHER))
    free = CLAIM_CODEC.encode(Claim(SchedulerSlot("z", 0, 2), None))
    for one, other, right in ((older, ours, ours), (ours, theirs, theirs), (theirs, free, free)):
        assert MERGE(key, one, other) == MERGE(key, other, one) == right
