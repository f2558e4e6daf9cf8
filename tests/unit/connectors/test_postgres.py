"""SQL on a PostgreSQL of the test's own: insert and replace, a growing column, a server that is killed and comes back."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("sqlalchemy", reason="no SQLAlchemy here: pip install 'agiledart[sql]'")
psycopg = pytest.importorskip("psycopg", reason="no psycopg here: pip install psycopg[binary]")

from agiledart_connectors.opening import open_sink, open_source  # noqa: E402
from agiledart_connectors.probing import probe_sink  # noqa: E402
from agiledart_connectors.remote import connection_health  # noqa: E402
from agiledart_dataflow.plan.connectors import parse_connector  # noqa: E402
from agiledart_kernel.errors import OperationFailed  # noqa: E402
from tests.e2e.mesh import wait_for  # noqa: E402
from tests.ports import lasting_port  # noqa: E402
from tests.unit.connectors.reading import Taken, taken  # noqa: E402

_FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
_USER = "postgres" if os.geteuid() == 0 else None
"""Its server refuses to be run by root."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _FOLDERS, reason="no PostgreSQL here (Debian: apt install postgresql)"),
]


class Minute(NamedTuple):
    room: str
    start: datetime
    mean: float
    high: int | None


class Server:
    """A PostgreSQL in a folder of its own."""

    def __init__(self) -> None:
        self._folder = Path(
            tempfile.mkdtemp(prefix="adt-pg-")
        )  # pytest's folders are closed to its user again and again
        self.data = self._folder / "data"
        self.port = lasting_port()
        if _USER:
            shutil.chown(self._folder, _USER)
        self._run(
            "initdb", "-D", str(self.data), "-U", "plant", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale", "C"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def _run(self, program: str, *words: str) -> None:
        subprocess.run([_FOLDERS[-1] / program, *words], check=True, capture_output=True, user=_USER, cwd="/")

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://plant@127.0.0.1:{self.port}/postgres"

    def connect(self) -> Any:
        return psycopg.connect(host="127.0.0.1", port=self.port, user="plant", dbname="postgres", autocommit=True)

    def start(self) -> None:
        """Begin, and wait until it takes calls."""
        words = [
            "-D",
            str(self.data),
            "-p",
            str(self.port),
            "-h",
            "127.0.0.1",
            "-k",
            str(self.data),
            "-c",
            "shared_buffers=16MB",
            "-c",
            "fsync=off",
        ]

        def is_up() -> bool:
            if self.process is None or self.process.poll() is not None:
                # One that was killed a moment ago may still have children that keep its memory: the next one ends at once.
                self.process = subprocess.Popen(
                    [_FOLDERS[-1] / "postgres", *words],
                    stderr=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    user=_USER,
                    cwd="/",
                )
            return self._answers()

        wait_for(is_up, 120, "PostgreSQL answers")

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it at once, without writing anything; it recovers when it begins again."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def close(self) -> None:
        """End it for ever."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def credential(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plant").write_text(server.url)
    (tmp_path / "plant").chmod(0o600)
    monkeypatch.setenv("AGILEDART_CREDENTIALS", str(tmp_path))
    monkeypatch.setattr(connection_health, "MIN_BACKOFF_SECONDS", 0.1)
    with server.connect() as connection:
        connection.execute("drop table if exists minutes")


def minutes(count: int, mean: float = 1.5) -> list[Minute]:
    noon = datetime.fromisoformat("2026-01-01T12:00:00")
    return [Minute(f"room-{number}", noon, mean, None if number % 2 else number) for number in range(count)]


def write(url: str, rows: list[Any]) -> None:
    writer = open_sink(parse_connector(url), Minute)
    writer.write(rows)
    writer.close()


def one(server: Server, query: str) -> Any:
    with server.connect() as connection:
        return connection.execute(query).fetchone()


def test_rows_with_a_key_replace_equal_keys(server: Server) -> None:
    url = "sql:plant?table=minutes&key=room,start&create=1"
    assert probe_sink(parse_connector(url), Minute, {}).text == "table will be made"
    write(url, minutes(50))
    write(url, minutes(60, mean=2.5))
    assert one(server, "select count(*), min(mean), sum(high) from minutes") == (60, 2.5, sum(range(0, 60, 2)))
    write("sql:plant?table=public.minutes", [Minute("other", datetime(1, 1, 1), 0.0, None)])  # noqa: DTZ001
    assert one(server, "select count(*) from minutes") == (61,)
    with pytest.raises(OperationFailed, match="refuses a row: duplicate key"):
        write("sql:plant?table=minutes&rejected=fail", minutes(1))


class Reading(NamedTuple):
    id: int
    celsius: float
    at: datetime
    note: str | None


def test_a_growing_column_is_read_with_its_additions(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("drop table if exists readings")
        connection.execute(
            "create table readings (id bigserial primary key, celsius numeric(6,2), at timestamp default now(), note text)"
        )
        connection.execute("insert into readings (celsius) select i / 4.0 from generate_series(1, 5000) i")
        found = taken(open_source(parse_connector("sql:plant?table=readings"), Reading))
        assert [row.id for row in found.rows] == list(range(1, 5_001))
        assert found.rows[2].celsius == 0.75
        loose = taken(open_source(parse_connector("sql:plant?table=readings&cursor=id"), dict[str, Any]))
        assert not isinstance(loose.rows[0]["celsius"], Decimal)
        reader = open_source(parse_connector("sql:plant?table=readings&poll=1s"), Reading)
        growing = Taken(reader).until(lambda it: len(it.rows) == 5_000)
        connection.execute("insert into readings (celsius, note) values (1, 'new')")
        growing.until(lambda it: len(it.rows) == 5_001)
        assert growing.rows[-1].note == "new"
        reader.close()


def test_a_killed_and_restarted_server_loses_nothing(server: Server) -> None:
    writer: Any = open_sink(parse_connector("sql:plant?table=minutes&key=room&create=1"), Minute)
    rows = minutes(20_000)
    for start in range(0, len(rows), 500):
        wait_for(writer.ready, 60, "there is room")
        writer.write(rows[start : start + 500])
        if start in (4_000, 12_000):
            server.kill()
            wait_for(writer.connection_status, 60, "the sink says that it is away")
            server.start()
    writer.close()
    assert one(server, "select count(*), count(distinct room) from minutes") == (20_000, 20_000)
    assert any("takes rows again" in note for note in writer.take_notices())
