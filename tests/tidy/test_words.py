"""The project speaks the field's words: counts of `tools/words.py` never rise, and each count can see its fault."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tools import words

from tests.tidy.test_tidy import _project

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.xdist_group("words")  # the counts share what they have read of each file


@pytest.mark.parametrize("row", words.COUNTS)
def test_no_package_has_more_than_its_highest_count(row: str) -> None:
    highest = words.settings(ROOT)["highest"].get(row, {})
    places = words.COUNTS[row](ROOT)
    above = {name: count for name, count in words.by_package(places).items() if count > highest.get(name, 0)}
    assert not above, "\n".join(str(place) for place in places if place.package in above)


@pytest.mark.parametrize(
    ("count", "name", "bad", "good"),
    [
        (words.house_words, "kernel/a.py", "next_life = 1\n", "next_attempt = 1\n"),
        (words.empty_names, "kernel/a.py", "found = 1\n", "peers = 1\n"),
        (words.test_names, "tests/a.py", "def test_what_is_told() -> None: ...\n", "def test_errors() -> None: ...\n"),
        (words.inverted_docstrings, "kernel/p/a.py", '"""Who asks."""\n', '"""The requester."""\n'),
        (words.subjectless, "kernel/p/a.py", '"""Of a node."""\n', '"""Name of a node."""\n'),
        (words.inverted_sentences, "a.md", "It goes to nobody at all.\n", "No node receives it.\n"),
        (words.large_classes, "kernel/p/a.py", "class A:\n" + "    x = 1\n" * 401, "class A:\n    x = 1\n"),
        (words.probes, "kernel/p/a.py", "x = getattr(1, 'real', 0)\n", "x = (1).real\n"),
        (words.shared_class_names, "kernel/p/a.py", "class A: ...\nclass B:\n    class A: ...\n", "class A: ...\n"),
    ],
)
def test_each_count_sees_what_it_is_for(
    tmp_path: Path, count: Callable[[Path], list[words.Place]], name: str, bad: str, good: str
) -> None:
    settings = (ROOT / "tools" / "words.toml").read_text()
    package = {"kernel/agiledart_kernel/__init__.py": "", "tools/words.toml": settings}
    name = name.replace("kernel/p/", "kernel/agiledart_kernel/")
    root = _project(tmp_path, {**package, name: bad})
    assert len(count(root)) == 1
    (root / name).write_text(good)
    assert count(root) == []
