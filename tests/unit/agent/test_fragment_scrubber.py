"""Fragments that the disk has damaged are found before they are needed."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from agiledart_agent.fragments.fragment_file_store import FragmentFileHeader, FragmentFileStore
from agiledart_agent.fragments.fragment_messages import FragmentDescriptor
from agiledart_agent.fragments.fragment_scrubber import FragmentScrubber
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.events import FragmentDamaged
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId


def kept(store: FragmentFileStore, index: int) -> FragmentKey:
    key = FragmentKey(RunId("app", 1), InstanceId("1"), CheckpointId(1, 1), index)
    data = bytes([index]) * 100
    writing = store.begin(
        FragmentFileHeader(FragmentDescriptor(key, b"d" * 32, 100, 1, 3, sha256(data).digest()), NodeId(7))
    )
    writing.write(data)
    store.finish(writing)
    return key


def test_damaged_fragments_are_reported_once_and_removed_and_the_others_stay(tmp_path: Path) -> None:
    store, told = FragmentFileStore(tmp_path), list[Any]()
    keys = [kept(store, index) for index in range(3)]
    for key, change in ((keys[0], lambda raw: raw[:-1] + b"?"), (keys[2], lambda raw: raw[:-1])):
        path = store._path(key)
        path.write_bytes(change(path.read_bytes()))

    async def play() -> FragmentScrubber:
        with ThreadPoolExecutor(1) as thread:
            scrubbing = FragmentScrubber(store, thread, told.append)
            for _ in range(2):
                await scrubbing.look()
        return scrubbing

    assert asyncio.run(play()).damaged == 2
    assert told == [FragmentDamaged(keys[0]), FragmentDamaged(keys[2])]
    assert store.held() == (keys[1],)
    assert len(list((tmp_path / "fragments").iterdir())) == 1
