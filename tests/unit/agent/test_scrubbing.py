"""Fragments that the disk has damaged are found before somebody needs them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from agiledart_agent.fragments.fragment_shelf import FragmentShelf, Header
from agiledart_agent.fragments.scrubbing import Scrubbing
from agiledart_agent.fragments.wire import About
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.events import FragmentDamaged
from agiledart_recovery.wire.names import Party, Run, Snapshot


def kept(shelf: FragmentShelf, index: int) -> FragmentKey:
    key = FragmentKey(Run("app", 1), Party("1"), Snapshot(1, 1), index)
    data = bytes([index]) * 100
    writing = shelf.begin(Header(About(key, b"d" * 32, 100, 1, 3, sha256(data).digest()), NodeId(7)))
    writing.write(data)
    shelf.finish(writing)
    return key


def test_what_is_damaged_is_told_once_and_goes_and_the_rest_stays(tmp_path: Path) -> None:
    shelf, told = FragmentShelf(tmp_path), list[Any]()
    keys = [kept(shelf, index) for index in range(3)]
    for key, change in ((keys[0], lambda raw: raw[:-1] + b"?"), (keys[2], lambda raw: raw[:-1])):
        path = shelf._path(key)
        path.write_bytes(change(path.read_bytes()))

    async def play() -> Scrubbing:
        with ThreadPoolExecutor(1) as thread:
            scrubbing = Scrubbing(shelf, thread, told.append)
            for _ in range(2):
                await scrubbing.look()
        return scrubbing

    assert asyncio.run(play()).damaged == 2
    assert told == [FragmentDamaged(keys[0]), FragmentDamaged(keys[2])]
    assert shelf.held() == (keys[1],)
    assert len(list((tmp_path / "fragments").iterdir())) == 1
