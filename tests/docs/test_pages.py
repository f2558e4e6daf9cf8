"""Every code block of the tutorials and how-tos is run, or says why not; the CLI reference is what the commands say."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tools import connectors_reference
from tools.cli_reference import TARGET, reference, version_line

from tests.docs.blocks import Block, blocks_of, environment_of

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TUTORIALS = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
CONNECT = ROOT / "docs" / "how-to" / "connect-your-data.md"
WRONG = ROOT / "docs" / "how-to" / "when-something-is-wrong.md"
PROVISIONING = ROOT / "docs" / "how-to" / "provisioning.md"
APPLICATIONS = ROOT / "docs" / "reference" / "applications.md"
SQL_AND_YAML = ROOT / "docs" / "reference" / "sql-and-yaml.md"
PAGES = [
    README,
    *TUTORIALS,
    CONNECT,
    WRONG,
    PROVISIONING,
    APPLICATIONS,
    SQL_AND_YAML,
    ROOT / "docs" / "how-to" / "spark.md",
]
NOT_RUN = {
    ("README.md", "sudo apt-get install -y make"): "installs system packages",
    ("README.md", "sudo apt-get install -y mosquitto"): "installs system packages",
    ("README.md", "agiledart demo --pull-the-plug"): "half a minute; tests/e2e/test_demo_plug.py does",
    (
        "connect-your-data.md",
        'agiledart submit rooms.py:rooms --set "readings=mqtt',
    ): "needs a broker; tests/unit/mqtt has one",
    ("spark.md", "pip install"): "installs packages",
    ("spark.md", "from agiledart.spark import spark_session"): "stands in the README, too, and is run there",
    ("spark.md", "from agiledart.spark import ship_package"): "needs a cluster; tests/spark/test_clusters.py does",
    ("spark.md", "def keep("): "never ends; tests/e2e/test_wheel.py runs it with an end",
}
"""(page, how the block begins) → why no test can run it, or where one does; it may only shrink."""
LANGUAGES = ("python", "console", "text", "json", "toml", "yaml")


def test_each_block_has_a_language() -> None:
    for page in PAGES:
        for block in blocks_of(page):
            assert block.language in LANGUAGES, f"{block.page}:{block.line}"


def test_a_block_that_fails_is_detected(tmp_path: Path) -> None:
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
    else:  # another click lays the help out in another way; the commands must be the same
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


def test_unexecuted_blocks_have_a_reason_from_the_list() -> None:
    found = {}
    for page in PAGES:
        for block in blocks_of(page):
            if block.reason:
                first = block.text.removeprefix("$ ")
                (key,) = [key for key in NOT_RUN if key[0] == block.page and first.startswith(key[1])]
                found[key] = block.reason
    assert found == NOT_RUN


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run(page: Path, reader: tuple[Path, dict[str, str]]) -> None:
    folder, environment = reader
    for block in blocks_of(page):
        if block.language in ("python", "console") and not block.reason:
            block.run(folder, environment)


@pytest.mark.slow
@pytest.mark.parametrize("page", [PROVISIONING, APPLICATIONS, SQL_AND_YAML], ids=lambda page: page.name)
def test_the_blocks_of_a_page_without_agents_run(page: Path, tmp_path: Path) -> None:
    for block in blocks_of(page):
        block.run(tmp_path, environment_of(tmp_path))


@pytest.mark.e2e
@pytest.mark.slow
def test_the_blocks_of_the_page_on_connectors_run(reader: tuple[Path, dict[str, str]]) -> None:
    folder, environment = reader
    has_sql = find_spec("sqlalchemy") is not None
    for block in blocks_of(CONNECT):
        if block.language in ("python", "console") and not block.reason and (has_sql or "sql:plant" not in block.text):
            block.run(folder, environment)
    if not has_sql:
        pytest.skip("no SQLAlchemy here: pip install 'agiledart[sql]'; the blocks about it were left out")


def test_the_reference_of_connectors_is_up_to_date() -> None:
    assert connectors_reference.TARGET.read_text() == connectors_reference.reference(), (
        "run: python -m tools.connectors_reference"
    )
