"""Source `opcua://HOST:PORT/PATH?nodes=ns=2;i=2,ns=2;i=3`: each change of a value is a row."""

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.options import number
from agiledart_connectors.remote.payload_queue import PayloadQueue, PayloadQueueReader
from agiledart_dataflow.plan.connector_kinds import API_VERSION, Guarantee
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError

USUAL_MS = 500
LOOK_SECONDS = 0.2
"""Interval of the thread's checks for its end and for the connection, seconds."""


class OpcUaSource:
    """Source kind to which the entry point refers."""

    api_version = API_VERSION
    what = "values of an OPC UA server, as they change"
    options = ("every_ms", "nodes")
    guarantee = Guarantee("may lose what changed meanwhile")

    def open_source(self, connector: Connector, row_type: Any) -> PayloadQueueReader:
        """Return the reader. Raises `ConfigurationError`."""
        nodes = [name.strip() for name in connector.option("nodes").split(",") if name.strip()]
        if not connector.path.startswith("//") or not nodes:
            raise ConfigurationError(f"{connector.url()}: write opcua://HOST:PORT?nodes=ns=2;i=2,ns=2;i=3")
        every_ms = number(connector, "every_ms", USUAL_MS, 10, 3_600_000)
        subscription = Subscription(f"opc.tcp:{connector.path}", nodes, every_ms)
        return PayloadQueueReader(connector.path.removeprefix("//"), open_decoder("json", row_type), subscription)


class Subscription:
    """Thread function with an event loop for asyncua, which restarts after a lost connection."""

    def __init__(self, url: str, nodes: list[str], every_ms: int) -> None:
        self._url, self._nodes, self._every_ms = url, nodes, every_ms

    def __call__(self, incoming: PayloadQueue) -> None:
        while not incoming.is_closed:
            try:
                asyncio.run(self._listen(incoming))
            except Exception as error:  # noqa: BLE001  asyncua raises errors of all layers below it
                if not incoming.report_failure(
                    f"{incoming.name} is unreachable ({str(error) or type(error).__name__})"
                ):
                    return

    async def _listen(self, incoming: PayloadQueue) -> None:
        from asyncua.client.client import Client

        client = Client(self._url, timeout=4)
        await client.connect()
        try:
            nodes = [client.get_node(name) for name in self._nodes]
            names = {node.nodeid.to_string(): (await node.read_browse_name()).Name for node in nodes}
            subscription = await client.create_subscription(self._every_ms, _Changes(incoming, names))
            await subscription.subscribe_data_change(nodes)
            incoming.report_success()
            while not incoming.is_closed:
                await asyncio.sleep(LOOK_SECONDS)
                await client.check_connection()
        finally:
            with contextlib.suppress(Exception):  # the connection may be lost
                await asyncio.wait_for(client.disconnect(), 2)


class _Changes:
    """Callback of asyncua for changed values."""

    def __init__(self, incoming: PayloadQueue, names: dict[str, Any]) -> None:
        self._incoming, self._names = incoming, names

    def datachange_notification(self, node: Any, value: Any, data: Any) -> None:
        name = node.nodeid.to_string()
        data_value = data.monitored_item.Value
        at: datetime | None = data_value.SourceTimestamp or data_value.ServerTimestamp
        at = at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)
        row = {"node": name, "name": self._names.get(name, ""), "value": value, "at": at}
        try:
            payload = msgspec.json.encode(row)
        except (TypeError, ValueError):
            self._incoming.lose("type", f"{name}: rows cannot hold a value of type {type(value).__name__}")
            return
        self._incoming.offer(payload, name)
