"""The project obeys its house rules, and each check of `tools/tidy.py` can fail."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tools import tidy

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("check", tidy.CHECKS, ids=lambda check: check.__name__)
def test_the_project_is_tidy(check: Callable[[Path], list[str]]) -> None:
    assert check(ROOT) == []


def _project(root: Path, files: dict[str, str]) -> Path:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


LONG = "def long() -> None:\n" + "    pass\n" * 61


@pytest.mark.parametrize(
    ("check", "name", "bad", "good"),
    [
        (tidy.check_sizes, "kernel/a.py", LONG, "def short() -> None:\n    pass\n"),
        (tidy.check_sizes, "kernel/a.py", "x = 1\n" * 901, "x = 1\n" * 900),
        (tidy.check_sizes, "kernel/a.py", "class Long:\n" + "    x = 1\n" * 401, "class Short:\n    x = 1\n"),
        (tidy.check_unfinished, "a.md", "FIX" + "ME later\n", "fixed\n"),
        (tidy.check_unfinished, "a.md", "<" * 7 + " HEAD\n", "< HEAD\n"),
        (tidy.check_sleeps, "tests/unit/a.py", "import time\ntime.sleep(1)\n", "import asyncio\nasyncio.sleep(0)\n"),
        (tidy.check_sleeps, "tests/unit/a.py", "import time\ntime.sleep(1)\n", "import time\ntime.time()\n"),
        (tidy.check_set_iteration, "overlay/a.py", "for x in {1, 2}:\n    print(x)\n", "for x in (1, 2):\n    print(x)\n"),
        (tidy.check_set_iteration, "overlay/a.py", "s: set[int] = set()\nl = list(s)\n", "s: set[int] = set()\nl = sorted(s)\n"),
        (tidy.check_set_iteration, "node/../overlay/a.py", "s = {1}\nl = [x for x in s]\n", "s = {1}\nb = 1 in s\n"),
        (tidy.check_packages, "overlay/agiledart_overlay/__init__.py", '"""Short."""\n', ""),
    ],
)  # fmt: skip
def test_each_check_detects_its_fault(
    tmp_path: Path, check: Callable[[Path], list[str]], name: str, bad: str, good: str
) -> None:
    root = _project(tmp_path, {name: bad})
    assert len(check(root)) >= 1
    if good:
        (root / name).write_text(good)
        assert check(root) == [key for key in check(root) if "no longer needed" in key]


def test_inconsistent_lists_are_named(tmp_path: Path) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    files = {f"{package}/__init__.py": "" for package in tidy.packages(ROOT)}
    files |= {"pyproject.toml": text.replace('"cli",', "", 1), "Makefile": (ROOT / "Makefile").read_text()}
    root = _project(tmp_path, files)
    problems = tidy.check_lists(root)
    assert problems
    assert all("cli" in problem for problem in problems)


def test_a_citation_without_a_reference_is_named(tmp_path: Path) -> None:
    root = _project(
        tmp_path,
        {
            "docs/references.md": "| [Pastry] | a work |\n",
            "overlay/a.py": '"""Routing.\n\nSource: [Pastry] §2 and [Nobody 1999].\n"""\n',
        },
    )
    assert tidy.check_citations(root) == ["overlay/a.py:3  [Nobody 1999] is not in docs/references.md"]


def test_an_unnecessary_exception_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidy, "LONG_FUNCTIONS", {"kernel/a.py:long": 80})
    root = _project(tmp_path, {"kernel/a.py": LONG})
    assert tidy.check_sizes(root) == []
    (root / "kernel" / "a.py").write_text("x = 1\n")
    assert tidy.check_sizes(root) == ["tools/tidy.py: the exception for kernel/a.py:long is no longer needed"]
