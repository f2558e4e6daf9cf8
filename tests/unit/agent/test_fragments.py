"""State on neighbours as bytes: sealed, cut, kept, fetched, put together; and everything that a peer or a disk may do to it."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from agiledart_agent.fragments import fragment_client
from agiledart_agent.fragments.erasure_code import cut, joined, sealed, unsealed
from agiledart_agent.fragments.fragment_client import FragmentClient
from agiledart_agent.fragments.fragment_file_store import (
    FragmentFileHeader,
    FragmentFileStore,
    FragmentUnavailable,
    FragmentWriter,
)
from agiledart_agent.fragments.fragment_messages import (
    ANSWERS,
    REQUESTS,
    FragmentDescriptor,
    FragmentRefused,
    PutAccepted,
    PutBytes,
    PutFragment,
)
from agiledart_agent.fragments.fragment_server import FragmentServer
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.fragments.arithmetic import stripe_providers, stripe_range
from agiledart_recovery.limits import SEAL_BYTES
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId

KEY = bytes(range(32))
ELEMENT = b"the state of an instance " * 4_000
DIGEST = sha256(ELEMENT).digest()
RUN = RunId("taxi", 1)
OWNER = Peer(NodeId(7), 1, "pi7")


def about(fragments: list[bytes], index: int, m: int, *, attempt: int = 1, epoch: int = 4) -> FragmentDescriptor:
    key = FragmentKey(RUN, InstanceId("1", 1, 0), CheckpointId(attempt, epoch), index)
    length = len(ELEMENT) + SEAL_BYTES
    return FragmentDescriptor(key, DIGEST, length, m, len(fragments), sha256(fragments[index]).digest())


# ---- the code (specification, R2, R3)


@pytest.mark.parametrize(("m", "k"), [(1, 1), (1, 2), (2, 2), (3, 2), (4, 2), (6, 3), (10, 4), (3, 0)])
def test_any_m_of_the_fragments_rebuild_the_snapshot(m: int, k: int) -> None:
    data = sealed(ELEMENT[:1_001], DIGEST, KEY)
    fragments = cut(data, m, m + k)
    assert len({len(fragment) for fragment in fragments}) == 1
    for chosen in combinations(range(m + k), m):
        (found,) = joined([{index: fragments[index] for index in chosen}], m, m + k, len(data))
        assert found == data, chosen


@pytest.mark.parametrize(("m", "k"), [(2, 2), (4, 2)])
def test_stripes_of_all_live_replica_nodes_rebuild_it_too(m: int, k: int) -> None:
    data = sealed(ELEMENT, DIGEST, KEY)
    fragments = cut(data, m, m + k)
    live = [index for index in range(m + k) if index != 1]
    stripes = []
    for stripe in range(len(live)):
        offset, length = stripe_range(stripe, len(live), len(fragments[0]))
        providers = [live[place] for place in stripe_providers(stripe, m, len(live))]
        stripes.append({index: fragments[index][offset : offset + length] for index in providers})
    (found,) = joined(stripes, m, m + k, len(data))
    assert unsealed(found, DIGEST, KEY) == ELEMENT


def test_a_forged_fragment_is_detected() -> None:
    data = sealed(ELEMENT, DIGEST, KEY)
    fragments = cut(data, 2, 4)
    bad = fragments[0][:10] + bytes([fragments[0][10] ^ 1]) + fragments[0][11:]
    tries = list(joined([{0: bad, 1: fragments[1], 3: fragments[3]}], 2, 4, len(data)))
    assert [unsealed(found, DIGEST, KEY) == ELEMENT for found in tries] == [False, False, True]


def test_a_replica_node_cannot_read_its_fragments_and_sealing_is_deterministic() -> None:
    data = sealed(ELEMENT, DIGEST, KEY)
    assert len(data) == len(ELEMENT) + SEAL_BYTES
    assert ELEMENT[:28] not in data
    assert sealed(ELEMENT, DIGEST, KEY) == data, "fragments that are made again must fit to the others"
    assert unsealed(data, DIGEST, bytes(32)) is None
    assert unsealed(data[:-1], DIGEST, KEY) is None
    with pytest.raises(OperationFailed, match="no key"):
        sealed(ELEMENT, DIGEST, b"")


# ---- the shelf


def stored(store: FragmentFileStore, description: FragmentDescriptor, fragment: bytes) -> None:
    writing = store.begin(FragmentFileHeader(description, OWNER.node))
    writing.write(fragment)
    store.finish(writing)


def path_of(folder: Path) -> Path:
    (path,) = (folder / "fragments").glob("[0-9a-f]*")
    return path


def test_a_fragment_survives_a_restart(tmp_path: Path) -> None:
    fragments = cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)
    stored(FragmentFileStore(tmp_path), about(fragments, 3, 2), fragments[3])
    (tmp_path / "fragments" / ".half.part").write_bytes(b"the unfinished files of a killed agent")
    again = FragmentFileStore(tmp_path)
    (header,) = again.stored_headers()
    assert (header.about, header.owner) == (about(fragments, 3, 2), OWNER.node)
    again.verify(header.about)
    assert again.read(header.about, 5, 20) == fragments[3][5:25]
    assert (again.count, again.held_bytes) == (1, len(fragments[3]))
    again.drop([header.about.key])
    assert again.clear()
    assert again.count == 0
    assert FragmentFileStore(tmp_path).stored_headers() == []


def test_a_fragment_that_the_disk_fails_to_remove_stays_queued_for_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is spared when it was stored again meanwhile."""
    store, fragments = FragmentFileStore(tmp_path), cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)
    for index in (0, 1):
        stored(store, about(fragments, index, 2), fragments[index])

    def read_only(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as struck:
        struck.setattr(Path, "unlink", read_only)
        store.drop([about(fragments, index, 2).key for index in (0, 1)])
        assert not store.clear()
    stored(store, about(fragments, 1, 2), fragments[1])
    assert store.clear()
    assert [header.about.key.index for header in FragmentFileStore(tmp_path).stored_headers()] == [1]


def test_a_flipped_bit_on_the_disk_is_detected(tmp_path: Path) -> None:
    store, fragments = FragmentFileStore(tmp_path), cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)
    stored(store, about(fragments, 0, 2), fragments[0])
    path = path_of(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 4
    path.write_bytes(raw)
    with pytest.raises(FragmentUnavailable, match="damaged"):
        store.verify(store.about(about(fragments, 0, 2).key, DIGEST))


def test_a_truncated_file_is_no_fragment(tmp_path: Path) -> None:
    store, fragments = FragmentFileStore(tmp_path), cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)
    stored(store, about(fragments, 0, 2), fragments[0])
    path = path_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FragmentUnavailable, match="cut short"):
        store.about(about(fragments, 0, 2).key, DIGEST)
    assert FragmentFileStore(tmp_path).stored_headers() == []
    assert not path.exists()


def test_a_fragment_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    fragments = cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)
    store = FragmentFileStore(tmp_path, max_bytes=2 * len(fragments[0]) + 10)
    stored(store, about(fragments, 0, 2), fragments[0])
    stored(store, about(fragments, 0, 2), fragments[0])  # the same again takes no more room
    with pytest.raises(FragmentUnavailable) as refused:
        store.begin(FragmentFileHeader(about(fragments, 1, 2), OWNER.node))
    assert refused.value.reason == "full"


def test_another_attempt_or_snapshot_has_another_fragment(tmp_path: Path) -> None:
    store, fragments = FragmentFileStore(tmp_path), cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)
    stored(store, about(fragments, 0, 2), fragments[0])
    for key, digest in (
        (about(fragments, 0, 2, attempt=2).key, DIGEST),
        (about(fragments, 0, 2, epoch=5).key, DIGEST),
        (about(fragments, 0, 2).key, bytes(32)),
    ):
        with pytest.raises(FragmentUnavailable) as refused:
            store.about(key, digest)
        assert refused.value.reason == "missing"


@pytest.mark.parametrize(
    ("index", "length", "m", "n"), [(4, 100, 2, 4), (0, 100, 3, 2), (0, 1 << 40, 1, 8), (0, 0, 1, 2)]
)
def test_impossible_fragments_are_refused(index: int, length: int, m: int, n: int) -> None:
    key = FragmentKey(RUN, InstanceId("1"), CheckpointId(1, 1), index)
    assert FragmentDescriptor(key, bytes(32), length, m, n, bytes(32)).fault()


# ---- the service: two ends joined in memory


class _PeerInfo:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def as_peer(self) -> Peer:
        return self._peer


class Wire:
    """One end of a link; its messages arrive at the other end in the next iteration of the loop."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.remote, self.closed = _PeerInfo(peer), peer.name, False
        self.deliver: Callable[[int, bytes], None] = lambda kind, body: None

    def send(self, kind: int, body: bytes) -> None:
        asyncio.get_running_loop().call_soon(self.deliver, kind, body)

    async def drain(self) -> None:
        await asyncio.sleep(0)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, reason: str = "done") -> None:
        self.closed = True


class Bench:
    """A replica node and a node that dials it."""

    def __init__(self, folder: Path, refused: tuple[str, str] = ("", "")) -> None:
        self.store, self.thread = FragmentFileStore(folder), ThreadPoolExecutor(1)
        self.counted: list[str] = []
        self.kept: list[FragmentKey] = []

        async def authorise(peer: Peer, key: FragmentKey, attempt: int) -> tuple[str, str]:
            return refused

        self.server = FragmentServer(
            self.store,
            self.thread,
            authorise,
            lambda key, _: self.kept.append(key),
            lambda reason, _: self.counted.append(reason),
        )
        self.client = FragmentClient(self.dial)

    async def dial(self, peer: Peer, on_frame: Any, on_closed: Any) -> Any:
        mine: Any = Wire(peer)
        theirs: Any = Wire(OWNER)
        handler = self.server.accept(theirs)
        mine.deliver = lambda kind, body: handler.on_frame(theirs, kind, body)
        theirs.deliver = lambda kind, body: on_frame(mine, kind, body)
        return mine


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


def test_a_fragment_is_stored_on_its_replica_node_and_fetched(tmp_path: Path) -> None:
    async def work() -> None:
        bench, fragments = Bench(tmp_path), cut(ELEMENT * 20, 2, 4)
        length = len(ELEMENT) * 20
        key = about(fragments, 2, 2).key
        description = FragmentDescriptor(key, DIGEST, length, 2, 4, sha256(fragments[2]).digest())
        await bench.client.put(Peer(NodeId(2)), description, fragments[2])
        assert bench.kept == [key]
        size = len(fragments[2])
        assert await bench.client.get(Peer(NodeId(2)), key, DIGEST, 0, 0, size) == fragments[2]
        assert await bench.client.get(Peer(NodeId(2)), key, DIGEST, 100, 300_000, 300_000) == fragments[2][100:300_100]
        with pytest.raises(OperationFailed, match="another snapshot"):
            await bench.client.get(Peer(NodeId(2)), key, bytes(32), 0, 0, size)
        with pytest.raises(OperationFailed, match="bytes 0 to"):
            await bench.client.get(Peer(NodeId(2)), key, DIGEST, 0, size + 1, size + 1)

    run(work())


@pytest.mark.parametrize(("bytes_each", "at_once"), [(1_000, 3), (300_000, 1)])
def test_small_fragments_are_announced_together_and_large_ones_in_turn(
    tmp_path: Path, bytes_each: int, at_once: int
) -> None:
    async def work() -> None:
        bench, gate, announced = Bench(tmp_path), asyncio.Event(), list[FragmentKey]()
        fragments = [bytes([number]) * bytes_each for number in range(3)]

        async def authorise(peer: Peer, key: FragmentKey, attempt: int) -> tuple[str, str]:
            await gate.wait()
            return "", ""

        async def dial(peer: Peer, on_frame: Any, on_closed: Any) -> Any:
            wire = await Bench.dial(bench, peer, on_frame, on_closed)
            deliver = wire.deliver

            def noted(kind: int, body: bytes) -> None:
                message = REQUESTS.decode(body)
                announced.extend([message.about.key] if isinstance(message, PutFragment) else [])
                deliver(kind, body)

            wire.deliver = noted
            return wire

        bench.server = FragmentServer(
            bench.store, bench.thread, authorise, lambda key, _: bench.kept.append(key), lambda *_: None
        )
        client = FragmentClient(dial)
        descriptions = [
            FragmentDescriptor(about(fragments, index, 1).key, DIGEST, bytes_each, 1, 3, sha256(fragment).digest())
            for index, fragment in enumerate(fragments)
        ]
        puts = asyncio.gather(*map(client.put, [Peer(NodeId(2))] * 3, descriptions, fragments))
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(announced) == at_once, "no round trip waits for another one"
        gate.set()
        await puts
        assert sorted(key.index for key in bench.kept) == [0, 1, 2]

    run(work())


class SilentWire(Wire):
    """A connection to an address that its node has left: nothing comes back, and nothing says so."""

    def __init__(self, peer: Peer, on_closed: Any) -> None:
        super().__init__(peer)
        self._on_closed, self.reason = on_closed, ""

    def send(self, kind: int, body: bytes) -> None: ...

    def abort(self, reason: str) -> None:
        self.closed, self.reason = True, reason
        self._on_closed(self, reason)


class MovingBench(Bench):
    """The first connection leads nowhere."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.silent: SilentWire | None = None
        self.dialled = asyncio.Event()

    async def dial(self, peer: Peer, on_frame: Any, on_closed: Any) -> Any:
        if self.silent is None:
            self.silent = SilentWire(peer, on_closed)
            self.dialled.set()
            return self.silent
        return await super().dial(peer, on_frame, on_closed)


def test_a_node_at_another_address_is_dialled_anew_and_requests_to_the_former_one_fail(tmp_path: Path) -> None:
    async def work() -> None:
        bench, fragments = MovingBench(tmp_path), cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)
        waits = asyncio.ensure_future(
            bench.client.put(Peer(NodeId(2), name="pi", address="10.0.0.1:1"), about(fragments, 0, 2), fragments[0])
        )
        await bench.dialled.wait()
        moved = Peer(NodeId(2), name="pi", address="10.0.0.2:1")
        await bench.client.put(moved, about(fragments, 0, 2), fragments[0])
        with pytest.raises(OperationFailed, match=r"pi is at 10\.0\.0\.2:1 now"):
            await waits
        assert bench.store.count == 1

    run(work())


def test_a_link_without_an_answer_is_cut_and_the_next_request_dials_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        bench, fragments = MovingBench(tmp_path), cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)
        monkeypatch.setattr(fragment_client, "ANSWER_SECONDS", 0.01)
        with pytest.raises(OperationFailed, match="no answer"):
            await bench.client.put(Peer(NodeId(2)), about(fragments, 0, 2), fragments[0])
        monkeypatch.undo()
        assert bench.silent is not None
        assert bench.silent.reason == "no answer"
        await bench.client.put(Peer(NodeId(2)), about(fragments, 0, 2), fragments[0])
        assert bench.store.count == 1

    run(work())


@pytest.mark.parametrize("reason", ["not a host", "old attempt"])
def test_a_non_host_or_late_sender_is_refused_and_counted(tmp_path: Path, reason: str) -> None:
    async def work() -> None:
        bench, fragments = Bench(tmp_path, (reason, "in words")), cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)
        with pytest.raises(OperationFailed, match="in words"):
            await bench.client.put(Peer(NodeId(2)), about(fragments, 0, 2), fragments[0])
        assert bench.counted == [f"fragment: {reason}"]
        assert bench.store.count == 0

    run(work())


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_replica_node_with_a_failing_disk_reports_it_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def full(self: FragmentWriter, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def unwritable(self: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    async def work() -> None:
        bench, fragments = Bench(tmp_path), cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)
        if fault == "full":
            monkeypatch.setattr(FragmentWriter, "write", full)
        else:
            monkeypatch.setattr(Path, "mkdir", unwritable)
        with pytest.raises(OperationFailed, match="the disk does not take the fragment"):
            await bench.client.put(Peer(NodeId(2)), about(fragments, 0, 2), fragments[0])
        assert bench.server.answered["disk"] == 1
        assert (bench.kept, bench.store.count) == ([], 0)
        assert list((tmp_path / "fragments").glob("*")) == []
        monkeypatch.undo()  # there is room again
        await bench.client.put(Peer(NodeId(2)), about(fragments, 0, 2), fragments[0])
        assert bench.store.count == 1

    run(work())


@pytest.mark.parametrize("damage", ["flipped", "short", "long"])
def test_a_fragment_damaged_in_transit_is_not_kept(tmp_path: Path, damage: str) -> None:
    async def work() -> None:
        bench, fragments = Bench(tmp_path), cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)
        whole = fragments[0]
        sent = {"flipped": b"x" + whole[1:], "short": whole[:-1], "long": whole + b"x"}[damage]
        answers: asyncio.Queue[object] = asyncio.Queue()
        link = await bench.dial(Peer(NodeId(2)), lambda _, kind, body: answers.put_nowait(ANSWERS.decode(body)), None)
        link.send(FrameKind.CONTROL, REQUESTS.encode(PutFragment(1, about(fragments, 0, 2))))
        assert await answers.get() == PutAccepted(1)
        link.send(FrameKind.CONTROL, REQUESTS.encode(PutBytes(1, sent)))
        if damage == "short":
            link.send(FrameKind.CONTROL, REQUESTS.encode(PutBytes(1, b"")))  # nothing more comes
        refused = await answers.get()
        assert isinstance(refused, FragmentRefused)
        assert refused.reason == "hash"
        assert bench.kept == []
        assert list((tmp_path / "fragments").glob("*")) == []

    run(work())


def test_a_replica_node_that_sends_too_much_is_not_trusted(tmp_path: Path) -> None:
    async def work() -> None:
        bench, fragments = Bench(tmp_path), cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)
        await bench.client.put(Peer(NodeId(2)), about(fragments, 0, 2), fragments[0])
        with pytest.raises(OperationFailed, match="more than was requested"):
            await bench.client.get(Peer(NodeId(2)), about(fragments, 0, 2).key, DIGEST, 0, 0, 10)

    run(work())


def test_a_snapshot_is_given_to_a_node_that_names_its_hash(tmp_path: Path) -> None:
    async def work() -> None:
        bench, path = Bench(tmp_path), tmp_path / "element"
        path.write_bytes(b"before" + ELEMENT * 20)
        length = len(ELEMENT) * 20
        bench.server._find = lambda run, digest, node: (path, 6, length) if (run, digest) == (RUN, DIGEST) else None
        taken = [piece async for piece in bench.client.take(OWNER, RUN, DIGEST, length)]
        assert b"".join(taken) == ELEMENT * 20
        assert len(taken) > 1
        with pytest.raises(OperationFailed, match="this node does not have it"):
            _ = [piece async for piece in bench.client.take(OWNER, RUN, bytes(32), length)]
        with pytest.raises(OperationFailed, match="more than was requested"):
            _ = [piece async for piece in bench.client.take(OWNER, RUN, DIGEST, length - 1)]
        path.write_bytes(b"before")
        with pytest.raises(OperationFailed, match="cut short"):
            _ = [piece async for piece in bench.client.take(OWNER, RUN, DIGEST, length)]

    run(work())
