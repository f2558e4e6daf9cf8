"""`agiledart init`: a folder with a first application, a test of it, and data."""

import re
from pathlib import Path

import click

from agiledart_cli.output import output_option, print_json, print_message
from agiledart_kernel.errors import ConfigurationError

LANGUAGES = ("python", "sql", "yaml")

_PYTHON = '''"""Mean temperature of each room and minute."""

from datetime import datetime
from typing import NamedTuple

from agiledart import Sink, Source, Topology, col, count, csv, tumbling


class Reading(NamedTuple):
    """Line of readings.csv."""

    at: datetime
    room: str
    celsius: float


def NAME(
    readings: Source[Reading] = csv("readings.csv"), minutes: Sink = csv("minutes.csv")
) -> Topology:
    """Build the topology."""
    topology = Topology("NAME")
    (
        topology.source("readings", readings, event_time="at")
        .where(col("celsius") > -40)
        .key_by(col("room"))
        .window(tumbling(minutes=1))
        .aggregate("per-minute", mean=col("celsius").mean(), readings=count())
        .sink("minutes", minutes)
    )
    return topology
'''

_SQL = """-- Mean temperature of each room and minute.
CREATE STREAM readings (at TIMESTAMP, room TEXT NOT NULL, celsius DOUBLE NOT NULL)
  WITH (source='csv:readings.csv', event_time='at');

CREATE STREAM minutes WITH (sink='csv:minutes.csv');

INSERT INTO minutes
SELECT room, window_start, window_end, AVG(celsius) AS mean, COUNT(*) AS readings
FROM TUMBLE(readings, at, INTERVAL '1' MINUTE)
WHERE celsius > -40
GROUP BY room, window_start;
"""

_YAML = """# Mean temperature of each room and minute.
name: NAME
sources:
  readings:
    from: csv:readings.csv
    columns: {at: time, room: text, celsius: float}
    event_time: at
steps:
  - name: plausible
    where: celsius > -40
  - name: per_minute
    window: {tumbling: 1m}
    key: room
    aggregate: {mean: AVG(celsius), readings: COUNT(*)}
sinks:
  minutes: {to: "csv:minutes.csv"}
"""

_DATA = """at,room,celsius
2026-01-01T08:00:00,attic,20.0
2026-01-01T08:00:20,cellar,12.0
2026-01-01T08:00:40,attic,22.0
2026-01-01T08:00:50,cellar,-99.0
2026-01-01T08:01:10,attic,24.0
"""

_TEST = '''"""The application gives the right means:  python -m pytest"""

from agiledart.testing import run_file


def test_means_of_rooms_and_minutes() -> None:
    rows = run_file("TARGET", minutes="collect")
    assert [(row.room, row.mean, row.readings) for row in rows] == [
        ("attic", 21.0, 2),
        ("cellar", 12.0, 1),
        ("attic", 24.0, 1),
    ]
'''

_TEXTS = {"python": _PYTHON, "sql": _SQL, "yaml": _YAML}
_SUFFIXES = {"python": "py", "sql": "sql", "yaml": "yaml"}


@click.command(short_help="Make a folder with a first application, its test and data.")
@click.argument("name")
@click.option(
    "--language",
    type=click.Choice(LANGUAGES),
    default="python",
    show_default=True,
    help="How the application is written.",
)
@output_option
def init(name: str, language: str, output: str) -> None:
    """Make the folder NAME with an application, a test of it, and data to run it on.

    \b
    Example:
      agiledart init rooms
      agiledart init rooms --language sql
      cd rooms && agiledart run rooms.sql
    """
    folder = Path(name).absolute()
    stem = folder.name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", stem):
        raise ConfigurationError(f"{stem!r} cannot name a module: small letters, digits and _, beginning with a letter")
    if folder.exists():
        raise ConfigurationError(f"{folder} exists already: choose another name, or remove it")
    file = f"{stem}.{_SUFFIXES[language]}"
    target = f"{file}:{stem}" if language == "python" else file
    texts = {
        file: _TEXTS[language].replace("NAME", stem),
        "readings.csv": _DATA,
        f"test_{stem}.py": _TEST.replace("TARGET", target),
    }
    try:
        folder.mkdir(parents=True)
        for path, text in texts.items():
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{folder} could not be made: {error.strerror}") from None
    if output == "json":
        print_json({"folder": str(folder), "files": list(texts), "target": target})
        return
    print_message(f"made {folder}: {', '.join(texts)}")
    print_message(f"next:  cd {name} && agiledart run {target}")
