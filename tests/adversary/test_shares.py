"""Shares: no key, node, run or machine takes so much of an agent that nothing is left for others."""

import contextlib
from hashlib import sha256
from pathlib import Path

import pytest

from agiledart_agent.control.control_api import CONTROL, MAX_OPEN_BYTES, ControlApi, ControlPeer
from agiledart_agent.fragments.fragment_file_store import FragmentFileHeader, FragmentFileStore, FragmentUnavailable
from agiledart_agent.fragments.fragment_messages import FragmentDescriptor
from agiledart_kernel.errors import Refused
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.permissions import Principal
from agiledart_node.wire.commands import Submit
from agiledart_node.wire.control_messages import ControlMessage, ControlRefusal, ControlRequest
from agiledart_overlay.records.record_store import Record, RecordStore
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from agiledart_transport.circuit_tickets import MAX_CIRCUITS, Booking, CircuitTickets, origin_of
from tests.adversary.findings import probe, twin

MB = 1 << 20

# ---- 22: records


def record(key: int, writer: int, size: int) -> Record:
    return Record(NodeId(key), 1, bytes(size), (NodeId(writer), 1, key))


@probe(22)
def test_one_nodes_records_leave_room_for_those_of_others() -> None:
    store = RecordStore(64 * MB)
    taken = [store.keep(record(key, 1, 900_000)) for key in range(200)]
    assert not all(taken)
    assert sum(taken) * 900_000 <= 32 * MB
    assert store.keep(record(1_000, 2, 900_000))
    assert store.keep(record(1_001, 1, 100)), "names and locations of the same node"


@twin(22)
def test_a_node_writes_a_hundred_large_records_and_replaces_them() -> None:
    store = RecordStore(64 * MB)
    assert all(store.keep(record(key, 1, 200_000)) for key in range(100))
    assert all(store.keep(Record(NodeId(key), 2, bytes(199_000), (NodeId(1), 1, 1))) for key in range(100))
    for key in range(100):
        store.drop(NodeId(key))
    assert all(store.keep(record(key, 1, 300_000)) for key in range(100))
    assert store.violations() == []


# ---- 23: fragments


def put(store: FragmentFileStore, run: str, number: int, size: int, owner: int = 7) -> bool:
    """Store a fragment of a run. Return whether the node takes it."""
    data = bytes(size)
    key = FragmentKey(RunId(run, 1), InstanceId("1", 1, 0), CheckpointId(1, number), 0)
    about = FragmentDescriptor(key, bytes(32), size, 1, 2, sha256(data).digest())
    with contextlib.suppress(FragmentUnavailable):
        writer = store.begin(FragmentFileHeader(about, NodeId(owner)))
        writer.write(data)
        store.finish(writer)
        return True
    return False


@probe(23)
@pytest.mark.parametrize("is_one_run", [True, False])
def test_one_host_fills_no_store_of_fragments(tmp_path: Path, is_one_run: bool) -> None:
    store = FragmentFileStore(tmp_path, max_bytes=100_000)
    taken = [put(store, "mine" if is_one_run else f"mine{number}", number, 1_000) for number in range(100)]
    assert 40 <= sum(taken) <= 50
    assert put(store, "other", 1, 1_000, owner=8)


@twin(23)
def test_a_run_replaces_its_fragments_at_its_share(tmp_path: Path) -> None:
    store = FragmentFileStore(tmp_path, max_bytes=100_000)
    assert all(put(store, "mine", number, 1_000) for number in range(40))
    again = FragmentFileStore(tmp_path, max_bytes=100_000)
    again.stored_headers()
    assert all(put(again, "mine", number, 1_000) for number in range(40))
    assert all(put(again, f"other{number}", number, 1_000, owner=8) for number in range(20))


# ---- 24: dry runs and submissions


def submitting(key: bytes, count: int, size: int = 7 * MB) -> tuple[ControlApi, list[ControlMessage]]:
    """Bring applications that are not answered yet. Return the agent's side and its refusals."""
    api = ControlApi(lambda *_: None, lambda *_: None, Principal("admin"), lambda *_: None)
    return api, [answer for number in range(count) for answer in sent(api, key, number, size)]


def sent(api: ControlApi, key: bytes, number: int, size: int) -> list[ControlMessage]:
    answers: list[ControlMessage] = []
    client = ControlPeer(
        Principal("submitter", "", key), "submitter", lambda _, body: answers.append(CONTROL.decode(body))
    )
    api.receive(client, CONTROL.encode(ControlRequest(number, Submit(f"app{number}", b"", bytes(size), dry_run=True))))
    api.forget(client)  # the node still works on it
    return answers


@probe(24)
def test_dry_runs_of_one_key_hold_a_share_of_memory() -> None:
    api, refusals = submitting(b"k" * 32, 48)
    assert 48 - len(refusals) <= MAX_OPEN_BYTES // 2 // (7 * MB)
    assert all(isinstance(refusal, ControlRefusal) and refusal.reason == "quota" for refusal in refusals)
    assert sent(api, b"other" + b"k" * 27, 99, 7 * MB) == []


@twin(24)
def test_answered_dry_runs_hold_nothing() -> None:
    api, refusals = submitting(b"k" * 32, 3)
    assert refusals == []
    for number in range(1, 4):
        api.answer(number, "yes")
    for number in range(100, 130):
        assert sent(api, b"k" * 32, number, 7 * MB) == []
        api.refuse(number - 96, "no")


# ---- 28: circuits


def booked(tickets: CircuitTickets, requester: int, remote: str, count: int) -> int:
    """Book circuits. Return how many the relay grants."""
    granted = 0
    for number in range(count):
        with contextlib.suppress(Refused):
            booking = Booking(requester.to_bytes(2, "big"), "10.0.0.9", 9464, origin=origin_of(remote))
            tickets.book(f"{requester} {number}".encode(), booking, 0)
            granted += 1
    return granted


@probe(28)
@pytest.mark.parametrize("remote", ["203.0.113.9:{}", "2001:db8:0:1::{}:9464"])
def test_nine_keys_of_one_machine_leave_circuits_for_others(remote: str) -> None:
    tickets = CircuitTickets()
    granted = sum(booked(tickets, key, remote.format(key + 1), 96) for key in range(9))
    assert granted <= MAX_CIRCUITS // 2
    assert booked(tickets, 100, "198.51.100.1:1", 30) == 30


@twin(28)
def test_nodes_behind_one_router_have_circuits_each() -> None:
    tickets = CircuitTickets()
    assert [booked(tickets, key, f"203.0.113.9:{key}", 8) for key in range(12)] == [8] * 12
    assert booked(tickets, 100, "198.51.100.1:1", 64) == 64
