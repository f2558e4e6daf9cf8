"""The worked example of a plugin, against asyncua's own server: found by its entry point, changes come, a server comes back."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart_connectors import plugins
from agiledart_connectors.opening import open_source
from agiledart_connectors.remote import connection_health
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import ConfigurationError
from tests.ports import lasting_port
from tests.unit.connectors.reading import Taken

EXAMPLE = Path(__file__).parents[3] / "examples" / "plugin-opcua"

asyncua = pytest.importorskip("asyncua", reason="no asyncua here, of examples/plugin-opcua: pip install asyncua")

pytestmark = pytest.mark.slow


class Change(NamedTuple):
    at: datetime
    name: str
    value: float


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after pip install."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setattr(connection_health, "MIN_BACKOFF_SECONDS", 0.1)
    point = EntryPoint("opcua", "agiledart_opcua:OpcUaSource", plugins.SOURCE_GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == plugins.SOURCE_GROUP else [])


class Plant:
    """A server with one variable, in a thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.node = self._do(self._begin())

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _begin(self) -> str:
        self._server = asyncua.Server()
        await self._server.init()
        self._server.set_endpoint(f"opc.tcp://127.0.0.1:{self._port}/plant")
        space = await self._server.register_namespace("urn:plant")
        self._variable = await self._server.nodes.objects.add_variable(space, "temperature", 20.5)
        await self._server.start()
        return str(self._variable.nodeid.to_string())

    def write(self, value: Any) -> None:
        self._do(self._variable.write_value(value))

    def close(self) -> None:
        self._do(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def plant(port: int) -> Iterator[Plant]:
    made = Plant(port)
    try:
        yield made
    finally:
        made.close()


def test_changes_become_rows_and_an_absent_server_is_reconnected() -> None:
    port = lasting_port()
    with plant(port) as server:
        url = f"opcua://127.0.0.1:{port}/plant?nodes={server.node}&every_ms=20"
        reader = open_source(parse_connector(url), Change)
        found = Taken(reader).until(lambda it: bool(it.rows))
        server.write(21.25)
        found.until(lambda it: it.rows[-1].value == 21.25)
        assert found.rows[0][1:] == ("temperature", 20.5)
        assert found.rows[-1].at.year >= 2020
    found.until(lambda it: "is unreachable" in it.reader.connection_status())
    with plant(port) as server:
        found.until(lambda it: not it.reader.connection_status())
        server.write(22.0)
        found.until(lambda it: it.rows[-1].value == 22.0)
        found.reader.close()


def test_the_plugin_is_listed_and_invalid_options_are_rejected() -> None:
    (found,) = [one for one in plugins.all_plugins() if one.name == "opcua"]
    assert (found.role, found.what, found.fault) == ("source", "values of an OPC UA server, as they change", "")
    with pytest.raises(ConfigurationError, match=r"write opcua://HOST:PORT\?nodes="):
        open_source(parse_connector("opcua://h:4840"), Change)
    with pytest.raises(ConfigurationError, match="opcua has no option 'node'"):
        open_source(parse_connector("opcua://h:4840?node=i=1"), Change)
