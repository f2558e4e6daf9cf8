"""Models' files on agents: uploaded, fetched by their hash from whichever node has them, bounded, never half there."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from agiledart_agent.models import model_store
from agiledart_agent.models.model_service import ModelService
from agiledart_executor.user_code.local_models import LocalModels
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.limits import MAX_MODEL_BYTES
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.wire.model_messages import FetchModel
from agiledart_node.wire.transfer_commands import UploadModel
from agiledart_recovery.wire.names import RunId

DATA = bytes(range(256)) * 40
DIGEST = sha256(DATA).digest()


class Network:
    """Nodes with their model services, and the links between them."""

    def __init__(self, root: Path, count: int = 3) -> None:
        self.root, self.spoils = root, dict[NodeId, Callable[[bytes], bytes]]()
        self.peers = [Peer(NodeId(number + 1), 1, f"pi{number}") for number in range(count)]
        self.events: list[Event] = []
        self.takes: Counter[str] = Counter()
        links: Any = self
        self.services = [
            ModelService(root / peer.name, links, lambda peer=peer: peer, self.events.append) for peer in self.peers
        ]

    async def take(self, peer: Peer, run: RunId, digest: bytes, most: int) -> AsyncGenerator[bytes]:
        """As `FragmentClient`."""
        self.takes[peer.name] += 1
        location = self.services[int(peer.node) - 1].find(run.app, digest)
        if location is None:
            raise OperationFailed("refused: this node does not have it")
        path, offset, length = location
        data = self.spoils.get(peer.node, bytes)(path.read_bytes()[offset : offset + length])
        for start in range(0, len(data), 1_000):
            await asyncio.sleep(0)
            yield data[start : start + 1_000]

    async def upload(self, data: bytes = DATA, digest: bytes = b"") -> dict[str, object]:
        """A user sends a file to the first node."""
        name, answer = (digest or sha256(data).digest()).hex(), dict[str, object]()
        for start in range(0, len(data), 4_000):
            piece = data[start : start + 4_000]
            answer = await self.services[0].upload(UploadModel("rooms", name, len(data), start, piece))
        return answer

    async def fetch(self, node: int, *copy_nodes: int, times: int = 1, size: int = len(DATA)) -> list[Event]:
        """A node fetches the file; the request may come several times."""
        before = len(self.events)
        for request in range(times):
            effect = FetchModel(
                request, "rooms", DIGEST, size, tuple(self.peers[copy_node] for copy_node in copy_nodes)
            )
            self.services[node]._begin(effect)
        await asyncio.gather(*self.services[node]._tasks)
        return self.events[before:]

    def models(self, node: int) -> LocalModels:
        """Models of the application as its executors see them on a node."""
        return LocalModels(self.root / f"pi{node}" / "models" / "rooms")

    def leftovers(self) -> list[str]:
        """Incomplete files."""
        return [str(path) for path in self.root.rglob("*.part")]


def play(root: Path, work: Callable[[Network], Coroutine[Any, Any, None]], count: int = 3) -> None:
    async def whole() -> None:
        network = Network(root, count)
        await work(network)
        for service in network.services:
            await service.close()

    asyncio.run(whole())


def test_nodes_fetch_a_model_from_any_node_that_has_it(tmp_path: Path) -> None:
    async def work(network: Network) -> None:
        assert (await network.upload())["is_whole"]
        with pytest.raises(ValueError, match="not on this node"):
            network.models(0).read(DIGEST)  # uploaded, but no user with the permission has shared it
        assert await network.fetch(0, 0) == [Completed(0)]
        assert await network.fetch(1, 0) == [Completed(0)]
        assert await network.fetch(2, 2, 1, 0) == [Completed(0)], "it has not the file, the next node gives it"
        assert network.takes == {"pi0": 1, "pi1": 1}
        assert [network.models(node).read(DIGEST) for node in range(3)] == [DATA] * 3
        assert not network.leftovers()

    play(tmp_path, work)


def test_a_repeated_request_fetches_once(tmp_path: Path) -> None:
    async def work(network: Network) -> None:
        await network.upload()
        assert await network.fetch(1, 0, times=3) == [Completed(request) for request in range(3)]
        await network.fetch(1, 0)
        assert network.takes == {"pi0": 1}

    play(tmp_path, work)


@pytest.mark.parametrize(
    ("spoils", "reason"),
    [
        (lambda data: data[:-1] + b"?", "not the announced one"),
        (lambda data: data[:-1], "it sent 10,239 of 10,240 bytes"),
        (lambda data: data + b"?", "it sent 10,241 of 10,240 bytes"),
    ],
)
def test_another_file_is_never_placed(tmp_path: Path, spoils: Callable[[bytes], bytes], reason: str) -> None:
    async def work(network: Network) -> None:
        await network.upload()
        network.spoils[network.peers[0].node] = spoils
        (event,) = await network.fetch(1, 0)
        assert isinstance(event, Failed)
        assert reason in event.reason
        with pytest.raises(ValueError, match="agiledart model APP FILE"):
            network.models(1).read(DIGEST)
        assert not network.leftovers()
        network.spoils.clear()
        assert await network.fetch(1, 0) == [Completed(0)]

    play(tmp_path, work)


def test_refusals_have_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(network: Network) -> None:
        (event,) = await network.fetch(1, 0, 2)
        assert isinstance(event, Failed)
        assert event.reason == (
            "no node gave the model (pi0: refused: this node does not have it; pi2: refused: this node does not have it)"
        )
        (event,) = await network.fetch(1, 0, size=MAX_MODEL_BYTES + 1)
        assert isinstance(event, Failed)
        assert event.reason == "the model has 67,108,865 bytes; the limit is 67,108,864"
        with pytest.raises(OperationFailed, match="not the announced one"):
            await network.upload(digest=b"x" * 32)
        with pytest.raises(OperationFailed, match="the limit is 67,108,864"):
            await network.services[0].upload(UploadModel("rooms", "ab" * 32, MAX_MODEL_BYTES + 1, 0, b"x"))
        monkeypatch.setattr(model_store, "FREE_SHARE", 0.0)
        with pytest.raises(OperationFailed, match="free bytes, and the model has"):
            await network.upload(b"another")

    play(tmp_path, work)


def test_the_oldest_model_goes_for_a_newer_one(tmp_path: Path) -> None:
    async def work(network: Network) -> None:
        store = network.services[0].store
        digests = []
        for number in range(model_store.MAX_OF_APPLICATION + 2):
            data = b"model %d" % number
            await network.upload(data)
            digests.append(sha256(data).digest())
            path = store.temporary_path()
            path.write_bytes(data)
            store.place("rooms", digests[-1], path)
        assert [store.has("rooms", digest) for digest in digests] == [False] * 2 + [
            True
        ] * model_store.MAX_OF_APPLICATION
        passing = list((tmp_path / "pi0" / "models" / ".passing").iterdir())
        assert len(passing) == model_store.MAX_PASSING

    play(tmp_path, work, 1)


def test_the_models_of_many_applications_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_store, "MAX_APPLICATIONS", 3)
    store = model_store.ModelStore(tmp_path)
    store.reserve(1)
    for number in range(5):
        path = store.temporary_path()
        path.write_bytes(DATA)
        store.place(f"app{number}", DIGEST, path)
        os.utime(tmp_path / "models" / f"app{number}", (number, number))
    assert [store.has(f"app{number}", DIGEST) for number in range(5)] == [False, False, True, True, True]
    assert (tmp_path / "models" / "app0").is_dir(), "a running executor may read this folder, and no other one"


def test_executors_read_only_the_file_of_the_hash(tmp_path: Path) -> None:
    (tmp_path / DIGEST.hex()).write_bytes(DATA[:-1])
    with pytest.raises(ValueError, match="is damaged: send it again"):
        LocalModels(tmp_path).read(DIGEST)
    (tmp_path / DIGEST.hex()).unlink()
    (tmp_path / "elsewhere").write_bytes(DATA)
    (tmp_path / DIGEST.hex()).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="not on this node"):
        LocalModels(tmp_path).read(DIGEST)
