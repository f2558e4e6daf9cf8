"""Options of a reader of a sink log, validated once. Plain values only, because they travel inside pickled readers.

Options contain names, never a secret: the token itself stays in a file, or in `AGILEDART_TOKEN` of each process.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from agiledart_kernel.errors import ConfigurationError
from pyspark_agiledart.row_filter import Condition, parse_where

TOKEN_VARIABLE: Final = "AGILEDART_TOKEN"
"""Environment variable with a token, used without a token file."""

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
READ_COMMITTED: Final = "read-committed"
READ_LATEST: Final = "read-latest"
WAIT: Final = "wait"
SKIP: Final = "skip"
FAIL: Final = "fail"

DEFAULT_WAIT_MS: Final = 500
"""Default of `waitMs`: idle queries send four requests a second at most. Source: measurement of the prototype (187 without it)."""

DEFAULT_MAX_ROWS: Final = 1_000_000
"""Default of `maxRowsPerBatch` of streams: without a limit the first micro-batch would be the whole log, and no table would
appear before its end. Measured: 2.3 M rows in one micro-batch took 36 s."""

MAX_WAIT_MS: Final = 5_000
DEFAULT_AGENT_TIMEOUT_S: Final = 60.0
_KNOWN: Final = (
    *("sink", "bootstrap", "tokenFile", "identityFile", "startingOffsets", "maxRowsPerBatch"),
    *("maxBytesPerBatch", "failOnDataLoss", "isolation", "waitMs", "agentTimeout"),
    *("metadata", "columns", "where", "pushFilters", "unreachable"),
)
_SIZE: Final = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|kB|MB|GB)?\Z", re.IGNORECASE)
_FACTORS: Final = {
    "": 1,
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
}
_SECONDS: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?\Z")
_SPANS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0}
SECRETS: Final = ("token", "grant", "identity", "key", "secret", "password")
"""Names of options that a user could expect to hold a secret, in lower case."""


@dataclass(frozen=True)
class ReaderOptions:
    """Options of one source.

    Attributes:
        sink: name of the log, or names and patterns (`city-*`) separated by commas.
        bootstrap: agents to ask, `host:port`; () for those that the token names.
        token_file: file with a token, which each process uses to join; "" for the environment variable.
        identity_file: file with a reader's identity, instead of a token.
        starting: `earliest`, `latest`, or key of a partition (`sink/0`) → first offset.
        max_rows, max_bytes: limits of one micro-batch; 0 for no limit.
        fail_on_loss: end the query when retention removed rows before they were read.
        wait_ms: longest wait of an agent for new rows.
        agent_timeout_s: seconds for which a task retries while the agent is unreachable.
        latest: also read uncommitted rows, which a recovery may remove.
        metadata: add the columns of `metadata_columns`: where a row comes from.
        columns: the columns to read; () for all.
        where: conditions of the rows to read, joined by AND.
        push_filters: also take Spark's own filters, in batches.
        unreachable: of several logs: `wait`, `skip` or `fail` when the agent of one is away.
    """

    sink: str
    bootstrap: tuple[str, ...] = ()
    token_file: str = ""
    identity_file: str = ""
    starting: str | Mapping[str, int] = EARLIEST
    max_rows: int = 0
    max_bytes: int = 0
    fail_on_loss: bool = True
    wait_ms: int = DEFAULT_WAIT_MS
    agent_timeout_s: float = DEFAULT_AGENT_TIMEOUT_S
    latest: bool = False
    metadata: bool = False
    columns: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    push_filters: bool = False
    unreachable: str = WAIT

    @property
    def sinks(self) -> tuple[str, ...]:
        """Return the names of the logs that the option names itself, in its order."""
        return tuple(part for part in self._parts() if not is_pattern(part))

    @property
    def patterns(self) -> tuple[str, ...]:
        """Return the patterns of names, in the order of the option."""
        return tuple(part for part in self._parts() if is_pattern(part))

    @property
    def is_several(self) -> bool:
        """Return whether the query may read more than one log."""
        return len(self.sinks) + len(self.patterns) > 1 or bool(self.patterns)

    def covers(self, name: str) -> bool:
        """Return whether the option names a log, or a pattern of it fits."""
        return name in self.sinks or any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def _parts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name.strip() for name in self.sink.split(",") if name.strip()))

    def check_key(self, key: str) -> str:
        """Return a key of Spark's offsets. Raises `ConfigurationError` when it belongs to a log that this query does not read."""
        name, _, number = key.rpartition("/")
        if not self.covers(name) or not number.isdigit():
            raise ConfigurationError(
                f"The checkpoint belongs to another sink: it has the offset {key!r}, this query reads {self.sink!r}. "
                f"Give each query a checkpointLocation of its own."
            )
        return key


def is_pattern(name: str) -> bool:
    """Return whether a name in the option `sink` is a pattern of names."""
    return any(sign in name for sign in "*?[")


def offset_key(sink: str, partition: int) -> str:
    """Return a partition's key in Spark's offsets: the log's name and a number, never an address."""
    return f"{sink}/{partition}"


def log_and_partition(key: str) -> tuple[str, int]:
    """Return the log and the partition of a key of Spark's offsets."""
    name, _, number = key.rpartition("/")
    return name, int(number)


def parse_options(given: Mapping[str, str]) -> ReaderOptions:
    """Return the options of a source from Spark's options, whose names are case-insensitive. Raises `ConfigurationError`."""
    names = {name.lower(): name for name in _KNOWN}
    texts: dict[str, str] = {}
    for name, text in given.items():
        lower = name.lower()
        if lower in SECRETS:
            raise ConfigurationError(
                f"The option {name} would put a secret into plans and logs; write it to a file and pass the file as "
                f"tokenFile, or set {TOKEN_VARIABLE} where Spark's processes start."
            )
        if lower == "path":
            texts.setdefault("sink", str(text))
        elif lower not in names:
            raise ConfigurationError(f"format('agiledart') has no option {name}; it has {', '.join(_KNOWN)}.")
        else:
            texts[names[lower]] = str(text)
    sink = texts.get("sink", "")
    if not sink:
        raise ConfigurationError("format('agiledart') needs the name of a sink log: .option('sink', 'clean-trips')")
    if "tokenFile" in texts and "identityFile" in texts:
        raise ConfigurationError("tokenFile and identityFile both identify the reader; give only one.")
    return ReaderOptions(
        sink=sink,
        bootstrap=parse_addresses(texts.get("bootstrap", "")),
        token_file=texts.get("tokenFile", ""),
        identity_file=texts.get("identityFile", ""),
        starting=_starting(texts.get("startingOffsets", EARLIEST), ReaderOptions(sink)),
        max_rows=_whole(texts, "maxRowsPerBatch", 0 if "maxBytesPerBatch" in texts else DEFAULT_MAX_ROWS, 1 << 62),
        max_bytes=_size(texts, "maxBytesPerBatch"),
        fail_on_loss=_flag(texts, "failOnDataLoss", True),
        latest=_choice(texts, "isolation", READ_COMMITTED, READ_LATEST) == READ_LATEST,
        wait_ms=_whole(texts, "waitMs", DEFAULT_WAIT_MS, MAX_WAIT_MS),
        agent_timeout_s=parse_span(texts, "agentTimeout", DEFAULT_AGENT_TIMEOUT_S),
        metadata=_flag(texts, "metadata", False),
        columns=tuple(name.strip() for name in texts.get("columns", "").split(",") if name.strip()),
        where=parse_where(texts.get("where", "")),
        push_filters=_flag(texts, "pushFilters", False),
        unreachable=_choice(texts, "unreachable", WAIT, SKIP, FAIL),
    )


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return addresses of agents from a text with commas. Raises `ConfigurationError`."""
    addresses = tuple(part.strip() for part in text.split(",") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ConfigurationError(f"bootstrap={text}: {address!r} is not HOST:PORT; separate several by commas.")
    return addresses


def _starting(text: str, options: ReaderOptions) -> str | dict[str, int]:
    sinks = options.sinks or ("york",)
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    wanted = f'startingOffsets is earliest, latest, or JSON such as {{"{sinks[0]}/0": 1200}}, not {text!r}'
    try:
        document = json.loads(text)
    except ValueError:
        raise ConfigurationError(wanted) from None
    if not isinstance(document, dict) or not document:
        raise ConfigurationError(wanted)
    offsets: dict[str, int] = {}
    for key, value in document.items():
        name, _, number = key.rpartition("/")
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if (
            not options.covers(name or sinks[0])
            or not number.isdigit()
            or not whole
            or (not name and options.is_several)
        ):
            raise ConfigurationError(wanted)
        offsets[offset_key(name or sinks[0], int(number))] = value
    return offsets


def _whole(texts: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = texts.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or int(text) > most:
        raise ConfigurationError(f"{name} is a whole number up to {most}, not {text!r}")
    return int(text)


def _size(texts: Mapping[str, str], name: str) -> int:
    text = texts.get(name)
    if text is None:
        return 0
    match = _SIZE.match(text.strip())
    if match is None:
        raise ConfigurationError(f"{name} is a size such as 64MiB or 1000000, not {text!r}")
    return int(match[1]) * _FACTORS[(match[2] or "").lower()]


def _flag(texts: Mapping[str, str], name: str, default: bool) -> bool:
    text = texts.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"{name} is true or false, not {texts[name]!r}")
    return text == "true"


def _choice(texts: Mapping[str, str], name: str, *allowed: str) -> str:
    """Return one of the allowed words; the first is the default."""
    text = texts.get(name, allowed[0]).lower()
    if text not in allowed:
        raise ConfigurationError(f"{name} is {' or '.join(allowed)}, not {texts[name]!r}")
    return text


def parse_span(texts: Mapping[str, str], name: str, default: float) -> float:
    """Return an option such as 60s or 2m in seconds. Raises `ConfigurationError`."""
    text = texts.get(name)
    if text is None:
        return default
    match = _SECONDS.match(text.strip())
    if match is None:
        raise ConfigurationError(f"{name} is a span such as 60s or 2m, not {text!r}")
    return float(match[1]) * _SPANS[match[2] or ""]
