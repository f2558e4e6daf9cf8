"""Followed files that other programs rotate, copy, pack, cut and write anew: each line comes once, or a note says which."""

import bz2
import gzip
import lzma
import os
from pathlib import Path
from typing import Any

import pytest

from agiledart_connectors.files import followed_lines, tail_copies
from agiledart_connectors.files.followed_lines import FollowedLines


class Looks:
    """Lines and notices of followed files, look by look."""

    def __init__(self, path: Path | str) -> None:
        self.lines = FollowedLines(str(path))
        self.texts: list[str] = []
        self.notes: list[str] = []

    def look(self) -> list[str]:
        """Read all that is there now; all texts so far."""
        while True:
            block = self.lines.block()
            assert block is not None
            self.texts += [text for text in block.lines if text or block.data]
            self.notes += self.lines.notices()
            if block.is_all_for_now:
                return self.texts


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_copies, "_QUIET_NS", 0)


def test_the_last_line_of_a_file_that_is_gone_needs_no_end(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("a1\na2")
    looks = Looks(path)
    assert looks.look() == ["a1"]
    path.rename(tmp_path / "app.log.1")
    path.write_text("b1\n")
    assert looks.look() == ["a1", "b1"]
    (tmp_path / "app.log.1").unlink()
    assert looks.look() == ["a1", "b1", "a2"]


def test_the_last_line_comes_some_seconds_after_the_name_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_lines, "_QUIET_S", 0.0)
    path = tmp_path / "app.log"
    path.write_text("a1\na2")
    looks = Looks(path)
    assert looks.look() == ["a1"]
    path.rename(tmp_path / "app.log.1")
    assert looks.look() == ["a1"]
    path.write_text("b1\n")
    assert looks.look() == ["a1", "b1", "a2"]
    with (tmp_path / "app.log.1").open("a") as file:  # its writer had not noticed
        file.write("-late\na3\n")
    assert looks.look() == ["a1", "b1", "a2", "-late", "a3"]
    assert looks.notes == ["app.log: more was written behind its last line, at offset 5, after that had been read"]


@pytest.mark.parametrize("content", ["d-one\nd-two\nd-three\n", "d\n", "dd\nd22\n"])
def test_a_file_that_is_cut_and_written_anew_is_read_from_its_beginning(content: str, tmp_path: Path) -> None:
    path = tmp_path / "ct.log"
    path.write_text("c1\nc22\n")
    looks = Looks(path)
    looks.look()
    path.write_text(content)  # the same inode: shorter, as long, longer
    os.utime(path, ns=(1, 1))
    assert looks.look() == ["c1", "c22", *content.split()]
    assert len(looks.notes) == 1
    assert looks.notes[0].startswith("ct.log ")
    with path.open("a") as file:
        file.write("more\n")
    assert looks.look() == ["c1", "c22", *content.split(), "more"]


def test_the_line_without_an_end_of_a_file_that_is_cut_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "ct.log"
    path.write_text("c1\nc2")
    looks = Looks(path)
    assert looks.look() == ["c1"]
    path.write_text("d1\nd2\nd3\n")
    assert looks.look() == ["c1", "c2", "d1", "d2", "d3"]


def _copied(path: Path, pack: Any) -> Path:
    copy = path.with_name(path.name + (".1" if pack is None else ".1.gz"))
    copy.write_bytes(path.read_bytes() if pack is None else pack(path.read_bytes()))
    return copy


@pytest.mark.parametrize("pack", [None, gzip.compress, bz2.compress, lzma.compress])
def test_a_copy_gives_only_lines_that_were_not_read_of_its_original(pack: Any, tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("a1\na2\n")
    looks = Looks(tmp_path / "app*")
    assert looks.look() == ["a1", "a2"]
    with path.open("a") as file:
        file.write("a3\n")
    _copied(path, pack)
    path.write_text("b1\n")  # copytruncate, before the third line was seen
    assert sorted(looks.look()) == ["a1", "a2", "a3", "b1"]
    assert looks.look() == looks.texts


@pytest.mark.parametrize("pack", [None, gzip.compress])
def test_a_copy_of_read_lines_gives_nothing(pack: Any, tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("a1\na2\n")
    looks = Looks(tmp_path)
    looks.look()
    _copied(path, pack)
    assert looks.look() == ["a1", "a2"]
    path.unlink()
    assert looks.look() == ["a1", "a2"]


@pytest.mark.parametrize("name", ["app.log.1", "other.log"])
def test_another_file_is_no_copy(name: str, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("same\na2\n")
    looks = Looks(tmp_path)
    looks.look()
    (tmp_path / name).write_text("same\nb2\nb3\n")
    assert looks.look() == ["same", "a2", "same", "b2", "b3"]


def test_a_packed_file_that_is_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("a\n")
    looks = Looks(tmp_path)
    looks.look()
    whole = gzip.compress(b"".join(b"%d\n" % number for number in range(30_000)))
    packed = tmp_path / "z.log.gz"
    packed.write_bytes(whole[: len(whole) // 2])
    looks.look()
    assert "packed data end in the middle" in looks.notes[-1]
    packed.write_bytes(whole)
    assert looks.look() == ["a", *map(str, range(30_000))]
