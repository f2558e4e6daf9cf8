"""Options of a writer to a feed, validated once. Like those of readers they contain names, never a secret."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agiledart_kernel.errors import ConfigurationError
from agiledart_sink_log.feed_protocol import MAX_QUERY_NAME, feed_name_fault
from pyspark_agiledart.reader_options import (
    DEFAULT_AGENT_TIMEOUT_S,
    SECRETS,
    TOKEN_VARIABLE,
    parse_addresses,
    parse_span,
)

_KNOWN: Final = ("feed", "bootstrap", "tokenFile", "identityFile", "writeId", "agentTimeout")
_OF_SPARK: Final = ("path", "checkpointlocation", "queryname")
"""Options that Spark hands on to a writer, in lower case."""

MAX_WRITE_ID: Final = MAX_QUERY_NAME - len("write:")


@dataclass(frozen=True)
class WriterOptions:
    """Options of one writer.

    Attributes:
        feed: name of the feed.
        bootstrap: agents to ask, `host:port`; () for those that the token names.
        token_file, identity_file: as of a reader.
        write_id: name of a batch write, which is published once; "" for a stream.
        agent_timeout_s: seconds for which a task retries while the agent is unreachable.
    """

    feed: str
    bootstrap: tuple[str, ...] = ()
    token_file: str = ""
    identity_file: str = ""
    write_id: str = ""
    agent_timeout_s: float = DEFAULT_AGENT_TIMEOUT_S


def parse_writer_options(given: Mapping[str, str], *, is_stream: bool) -> WriterOptions:
    """Return the options of a writer from Spark's options, whose names are case-insensitive. Raises `ConfigurationError`."""
    names = {name.lower(): name for name in _KNOWN}
    texts: dict[str, str] = {}
    for name, text in given.items():
        lower = name.lower()
        if lower in SECRETS:
            raise ConfigurationError(
                f"The option {name} would put a secret into plans and logs; write it to a file and pass the file as "
                f"tokenFile, or set {TOKEN_VARIABLE} where Spark's processes start."
            )
        if lower in names:
            texts[names[lower]] = str(text)
        elif lower not in _OF_SPARK:
            raise ConfigurationError(
                f"A writer of format('agiledart') has no option {name}; it has {', '.join(_KNOWN)}."
            )
    feed = texts.get("feed", "")
    if not feed:
        raise ConfigurationError("Writing with format('agiledart') needs a feed: .option('feed', 'usual-durations')")
    if fault := feed_name_fault(feed):
        raise ConfigurationError(f"feed={feed}: {fault}.")
    write_id = texts.get("writeId", "")
    if write_id and is_stream:
        raise ConfigurationError("writeId is for df.write; a stream is named by its checkpointLocation.")
    if len(write_id.encode()) > MAX_WRITE_ID:
        raise ConfigurationError(f"writeId has at most {MAX_WRITE_ID} bytes, not {len(write_id.encode())}.")
    if "tokenFile" in texts and "identityFile" in texts:
        raise ConfigurationError("tokenFile and identityFile both identify the writer; give only one.")
    return WriterOptions(
        feed,
        parse_addresses(texts.get("bootstrap", "")),
        texts.get("tokenFile", ""),
        texts.get("identityFile", ""),
        write_id,
        parse_span(texts, "agentTimeout", DEFAULT_AGENT_TIMEOUT_S),
    )
