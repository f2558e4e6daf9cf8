"""Every code block of the README and the tutorials is run, or says why not; the CLI reference is what the commands say."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.cli_reference import TARGET, reference, version_line

from tests.docs.blocks import Block, blocks_of, environment_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md"))]
LANGUAGES = ("python", "console", "text", "json", "toml")


def test_each_block_has_a_language() -> None:
    for page in PAGES:
        for block in blocks_of(page):
            assert block.language in LANGUAGES, f"{block.page}:{block.line}"


def test_a_block_that_fails_is_noticed(tmp_path: Path) -> None:
    environment = environment_of(tmp_path)
    for block in (
        Block("a.md", 1, "console", "$ false\n", ""),
        Block("a.md", 1, "console", "$ true  # exit code 2\n", ""),
        Block("a.md", 1, "python", "assert False\n", ""),
    ):
        with pytest.raises(AssertionError, match=r"^a\.md:1"):
            block.run(tmp_path, environment)
    Block("a.md", 1, "console", "$ exit 2  # exit code 2\nsome output\n", "").run(tmp_path, environment)


def test_the_reference_of_the_command_line_is_up_to_date() -> None:
    written, now = TARGET.read_text(), reference()
    if version_line() in written:
        assert now == written, "run: python -m tools.cli_reference"
    else:  # another click lays the help out in another way; what can be typed must be the same
        assert set(re.findall(r"--[a-z][a-z-]+", now)) == set(re.findall(r"--[a-z][a-z-]+", written))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder and an environment in which a mesh of three agents runs."""
    environment = environment_of(tmp_path)
    command = [sys.executable, "-m", "agiledart_cli.main", "up", "--agents", "3", "-o", "json"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as mesh:
        assert mesh.stdout is not None
        assert mesh.stderr is not None
        text = ""
        while not text.endswith("}\n") or text.count("{") != text.count("}"):
            line = mesh.stdout.readline()
            assert line, mesh.stderr.read()
            text += line
        assert len(json.loads(text)["agents"]) == 3
        yield tmp_path, environment
        mesh.terminate()
        mesh.communicate(timeout=20)
        assert mesh.returncode == 143


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run(page: Path, reader: tuple[Path, dict[str, str]]) -> None:
    folder, environment = reader
    for block in blocks_of(page):
        if block.language in ("python", "console") and not block.reason:
            block.run(folder, environment)
