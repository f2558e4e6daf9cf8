"""Every command of the README is typed as a reader types it, part by part, and does what the README says."""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from agiledart_examples.felt_temperature import trained_model
from tests.broker import PROGRAM, Broker
from tests.docs.blocks import Block, blocks_of
from tests.docs.stranger import Stranger, clone_of_it
from tests.spark.conftest import HAS_SPARK

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.xdist_group("spark")]

README = Path(__file__).resolve().parents[2] / "README.md"
PARTS = ("## See it", "## Five minutes", "**Two machines.**")
"""The beginning of each part that needs nothing from the parts before it."""

FIVE_MINUTES = ("paho", "sqlalchemy", "sqlglot", "yaml", "onnxruntime")
"""Libraries of the README's way from a sensor to a table."""

SHORT_DEMO = {"ARGS": "--duration 5"}
"""`make demo` takes options from here, so that the same command ends before its minute is over."""


def blocks_of_part(part: str) -> list[Block]:
    """Blocks from the beginning of a part to that of the next, in order."""
    text = README.read_text()
    lines = [text[: text.index(beginning)].count("\n") + 1 for beginning in PARTS] + [text.count("\n") + 1]
    first, after = lines[PARTS.index(part) :][:2]
    return [block for block in blocks_of(README) if first <= block.line < after]


def test_each_block_is_in_a_part() -> None:
    assert [block for part in PARTS for block in blocks_of_part(part)] == blocks_of(README)


HAS_BROKER = (
    PROGRAM is not None
    and shutil.which("mosquitto_pub") is not None
    and all(find_spec(name) is not None for name in FIVE_MINUTES)
)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose name is short enough for the sockets of agents in it."""
    with tempfile.TemporaryDirectory(prefix="adr-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def can_run(block: Block) -> bool:
    """Return whether this machine has the software that the block needs."""
    needs_spark = "agiledart.spark" in block.text or "analytics run" in block.text
    needs_broker = "1883" in block.text or "plant" in block.text
    return not block.reason and (HAS_SPARK or not needs_spark) and (HAS_BROKER or not needs_broker)


def follow(part: str, folder: Path, **environment: str) -> int:
    """Type all commands of a part; return their number."""
    (folder / "broker").mkdir()
    with Broker(folder / "broker") if HAS_BROKER else contextlib.nullcontext() as broker:
        reader = Stranger(folder, broker_port=0 if broker is None else broker.port, variables=environment)
        clone_of_it(folder / "here")
        try:
            for block in blocks_of_part(part):
                if can_run(block):
                    reader.follow(block)
        finally:
            reader.leave()
    return len(reader.run)


def test_the_demo_works(short_path: Path) -> None:
    assert follow("## See it", short_path, **SHORT_DEMO) == 4


@pytest.mark.soak
def test_the_demo_of_a_minute_works(short_path: Path) -> None:
    assert follow("## See it", short_path) == 4


def test_the_first_applications_work(short_path: Path) -> None:
    assert follow("## Five minutes", short_path) >= (24 if HAS_SPARK else 21)
    if not HAS_BROKER:
        pytest.skip(
            f"no mosquitto here (Debian: apt install mosquitto mosquitto-clients), or one of {', '.join(FIVE_MINUTES)};"
            " the lines of the sensor were left out"
        )
    with sqlite3.connect(short_path / "here" / "db" / "plant.db") as database:
        minutes = database.execute("select room, felt, warmest, readings from minutes order by window_start").fetchall()
    model = trained_model()
    felt = [model.score({"celsius": celsius, "humidity": humidity}) for celsius, humidity in ((28.5, 60), (25, 50))]
    assert minutes == [("attic", pytest.approx(felt[0]), 28.5, 1), ("attic", pytest.approx(felt[1]), 25, 1)]


def test_two_machines_form_a_network(short_path: Path) -> None:
    assert follow("**Two machines.**", short_path) == 5
