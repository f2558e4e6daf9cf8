"""Do brokers answer, do they let us in, and do they have the topic? For `submit --dry-run`."""

import asyncio
from typing import Any

from aiokafka.errors import KafkaError

from agiledart_connectors.codecs.decoder_options import decoder_options
from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.codecs.payloads import payload_renderer
from agiledart_connectors.kafka import kafka_client
from agiledart_connectors.kafka.kafka_address import KafkaAddress, kafka_address
from agiledart_connectors.kafka.partitions import topic_selection_of
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import OperationFailed


def probe_source(connector: Connector, row_type: Any) -> str:
    """Also whether its messages can become rows, and which partitions are its own."""
    address = kafka_address(connector)
    selection = topic_selection_of(connector, connector.option("group"))
    open_decoder(connector.option("format", "json"), row_type, decoder_options(connector))
    partitions = asyncio.run(_partitions(address))
    own_share = selection.own_share(partitions)
    of = f" of {len(partitions)}" if selection.shares > 1 else ""
    return f"connected, {len(own_share)}{of} partition{'s' if len(own_share) != 1 else ''}"


def probe_sink(connector: Connector, row_type: Any) -> str:
    """Sends nothing."""
    payload_renderer(connector, row_type)
    partitions = asyncio.run(_partitions(kafka_address(connector)))
    return f"connected, {len(partitions)} partition{'s' if len(partitions) != 1 else ''}"


async def _partitions(address: KafkaAddress) -> set[int]:
    """Return the partitions of the topic. Raises `OperationFailed`."""
    consumer = kafka_client.consumer(address, "")
    try:
        async with asyncio.timeout(kafka_client.START_SECONDS):
            await consumer.start()
            if address.topic not in await consumer.topics():
                raise OperationFailed(
                    f"{address.broker} has no topic {address.topic}, or does not show it to us; make it first, with as many"
                    " partitions as there are to be"
                )
            return await kafka_client.partitions_of(consumer, address.topic)
    except (KafkaError, TimeoutError):
        why = await kafka_client.reason(address)
        raise OperationFailed(f"not connected to {address.broker} ({why})") from None
    finally:
        await consumer.stop()
