"""Settings and errors of aiokafka clients, and the reason why no broker can be reached."""

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from agiledart_connectors.kafka.kafka_address import KafkaAddress
from agiledart_kernel.errors import OperationFailed

DIAL_SECONDS: Final = 3.0
START_SECONDS: Final = 15.0
END_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 4.0
"""Timeout for a broker's answer to a small request."""

METADATA_SECONDS: Final = 20
"""So often a client asks which partitions there are."""

FETCH_BYTES: Final = 8 << 20
PARTITION_BYTES: Final = 1 << 20
"""Bytes of one answer of one partition; a larger message comes alone. As much again of each partition waits in aiokafka."""

_MAX_LOG_RECORDS: Final = 64


class _LastLogRecords(logging.Handler):
    """Keeps why a broker could not be asked, which aiokafka writes into its log and nowhere else; lets nothing through."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.words: dict[tuple[str, int], BaseException] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the error of a record `"%s:%s": %s`: host, port, error."""
        arguments: Any = record.args
        if isinstance(arguments, tuple) and len(arguments) == 3 and isinstance(arguments[2], BaseException):
            if len(self.words) >= _MAX_LOG_RECORDS:
                self.words.clear()
            self.words[str(arguments[0]), int(arguments[1])] = arguments[2]


_LAST: Final = _LastLogRecords()
_LOG: Final = logging.getLogger("aiokafka")
_LOG.handlers[:] = [_LAST]
_LOG.propagate = False


def settings(address: KafkaAddress) -> dict[str, Any]:
    """Arguments of consumers and producers. Raises `OperationFailed`: certificates cannot be used."""
    login = address.login
    security = ("SASL_" if login else "") + ("SSL" if address.tls else "PLAINTEXT")
    settings: dict[str, Any] = {
        "bootstrap_servers": address.servers,
        "client_id": "agiledart",
        "security_protocol": security,
        "metadata_max_age_ms": METADATA_SECONDS * 1_000,
    }
    if address.tls:
        settings["ssl_context"] = _context(address)
    if login is not None:
        settings |= {
            "sasl_mechanism": address.mechanism,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
        }
    return settings


def consumer(address: KafkaAddress, group: str) -> AIOKafkaConsumer:
    """Return a consumer that reads assigned partitions; it never commits an offset by itself."""
    return AIOKafkaConsumer(
        group_id=group or None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        fetch_max_bytes=FETCH_BYTES,
        max_partition_fetch_bytes=PARTITION_BYTES,
        fetch_max_wait_ms=500,
        **settings(address),
    )


def producer(address: KafkaAddress, max_bytes: int) -> AIOKafkaProducer:
    """One whose messages a broker keeps once, however often a broken connection lets them be sent."""
    return AIOKafkaProducer(
        enable_idempotence=True,
        max_batch_size=256 << 10,
        max_request_size=max_bytes,
        request_timeout_ms=10_000,
        **settings(address),
    )


async def partitions_of(consumer: Any, topic: str) -> set[int]:
    """The partitions of a topic that brokers have; they would make one that they do not have. It is assigned the first one."""
    consumer.assign([TopicPartition(topic, 0)])  # so that it is among those whose metadata are fetched
    while not (partitions := consumer.partitions_for_topic(topic)):  # noqa: ASYNC110  aiokafka signals no arrival of metadata
        await asyncio.sleep(0.02)
    return set(partitions)


async def ended(closing: Coroutine[Any, Any, None]) -> None:
    """Wait for a consumer or producer to stop, not for long. Where brokers are gone aiokafka's own tasks end it with what was meant
    for them, `CancelledError` too.
    """
    task = asyncio.ensure_future(closing)
    await asyncio.wait([task], timeout=END_SECONDS)
    if not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=END_SECONDS)
    if task.done() and not task.cancelled():
        task.exception()  # taken note of


def _context(address: KafkaAddress) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=address.ca or None)
        if address.cert:
            context.load_cert_chain(address.cert, address.cert_key or None)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (address.ca, address.cert, address.cert_key)))
        raise OperationFailed(f"certificates ({files}) cannot be used: {error}") from None
    return context


async def reason(address: KafkaAddress) -> str:
    """Return why no broker can be reached, in a few words: the error of connecting, else the last one logged."""
    why = ""
    for host, port in address.brokers:
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                _, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            why = "it does not answer"
        except OSError as dialled:
            why = _words(dialled)
        else:
            writer.close()
            logged = _LAST.words.get((host, port))
            return "it took the call and did not answer" if logged is None else _words(logged)
    return why


def _words(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, TimeoutError):
        return "it took the call and did not answer"
    if isinstance(error, ssl.SSLError):
        return f"tls: {error.reason or error}".lower()
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return error_text(error)


def error_text(error: BaseException) -> str:
    """An error of aiokafka as users may read it."""
    name = getattr(error, "message", "") or type(error).__name__
    text = str(error).removeprefix(f"[Error {getattr(error, 'errno', '')}] ").removeprefix(f"{type(error).__name__}: ")
    if isinstance(error, KafkaError) and text and text != type(error).__name__:
        return text[:200]
    return str(name).lower().replace("_", " ")
