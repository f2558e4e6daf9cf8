"""A successor may hold a fragment of a state: that one is read from its own disk."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agiledart_agent.fragments.erasure_code import cut, sealed
from agiledart_agent.fragments.fragment_service import FragmentService
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.peer import Peer
from agiledart_node.wire.fragment_effects import FetchFragment
from agiledart_recovery.limits import SEAL_BYTES
from agiledart_recovery.wire.register_value import InstanceSnapshot
from tests.unit.agent.test_fragments import DIGEST, ELEMENT, KEY, OWNER, about, path_of, stored


async def nobody(peer: Peer, on_frame: Any, on_closed: Any) -> Any:
    raise AssertionError("no node is to be dialled")


def test_a_fragment_of_this_node_comes_from_the_disk(tmp_path: Path) -> None:
    fragments = cut(sealed(ELEMENT, DIGEST, KEY), 2, 4)

    async def work() -> None:
        desk = FragmentService(OWNER.node, tmp_path, nobody, lambda event: None, lambda *_: None)
        key = about(fragments, 1, 2).key
        stored(desk.store, about(fragments, 1, 2), fragments[1])
        snapshot = InstanceSnapshot(key.checkpoint, DIGEST, len(ELEMENT) + SEAL_BYTES, 2, (OWNER.node,) * 4)
        assert await desk._fetch(FetchFragment(1, OWNER, key, snapshot, 0, 0)) == fragments[1]
        assert await desk._fetch(FetchFragment(1, OWNER, key, snapshot, 10, 20)) == fragments[1][10:30]
        file = path_of(tmp_path)
        file.write_bytes(file.read_bytes()[:-1] + b"?")
        with pytest.raises(OperationFailed, match="damaged"):
            await desk._fetch(FetchFragment(1, OWNER, key, snapshot, 0, 0))
        await desk.close()

    asyncio.run(work())
