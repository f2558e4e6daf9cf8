"""Sources and sinks as values; nothing is opened before the topology runs.

On the command line the same are written as URLs: `csv:trips.csv.gz?speed=60@pi2`, `taxi:?seed=7&count=10000`, `stdout:`.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from agiledart_dataflow.plan.connectors import Connector, Source, connector, records_source
from agiledart_kernel.errors import ConfigurationError

T = TypeVar("T")


def csv(
    path: str,
    *,
    speed: float | None = None,
    header: bool | None = None,
    null: str | None = None,
    malformed: str | None = None,
    follow: bool | None = None,
    format: str | None = None,  # noqa: A002  the option's name on the command line
    roll_bytes: str | None = None,
    roll_age: str | None = None,
    at: str = "",
) -> Connector:
    """A CSV file, as source (plain or gzip) or as sink.

    Args:
        path: of the file on the node where it is read or written; a source also takes a folder or a pattern (`in/*.csv`).
        speed: source: paced by event time, so many times faster than it happened; as fast as possible when left out.
        header: source: whether the first line names the columns. Left out, it does when it names all fields of the rows; then
            columns are taken by name, whatever their order, and others are passed over.
        null: sink: what stands for None; `NULL` when left out.
        malformed: source: `count` records that are none (the usual; the first few are told), or `fail` at the first.
        follow: source: read what is appended and what is added, without end; rotation is understood.
        format: source: what the lines are, when not CSV: `json`, `text`, `senml`, `raw`.
        roll_bytes, roll_age: sink: begin a new file (`NAME-00001.csv`, …) at this size, like `64MiB`, or age, like `1h`; files
            that are whole lose the ending `.part`.
        at: the node that reads or writes it.
    """
    return connector(
        "csv",
        path,
        speed=speed,
        header=header,
        null=null,
        malformed=malformed,
        follow=follow,
        format=format,
        roll_bytes=roll_bytes,
        roll_age=roll_age,
        at=at,
    )


def tcp(
    host: str,
    port: int,
    *,
    listen: bool | None = None,
    reconnect: bool | None = None,
    format: str | None = None,  # noqa: A002  the option's name on the command line
    at: str = "",
) -> Connector:
    """Source: lines from a TCP connection. Not encrypted: for programs on the same machine.

    Args:
        host, port: to connect to; with `listen` where to listen ("" for 127.0.0.1).
        listen: wait for connections, of which there may be several at one time.
        reconnect: do not end when the peer closes: connect again, or wait for the next one.
        format: what the lines are: `csv` (the usual), `json`, `text`, `senml`, `raw`.
        at: the node that reads.
    """
    return connector("tcp", f"{host}:{port}", listen=listen, reconnect=reconnect, format=format, at=at)


def jsonl(
    path: str,
    *,
    speed: float | None = None,
    malformed: str | None = None,
    follow: bool | None = None,
    roll_bytes: str | None = None,
    roll_age: str | None = None,
    at: str = "",
) -> Connector:
    """A file of JSON objects, one per line, as source (plain or gzip) or as sink.

    As source it fills the fields of the rows by name; `Annotated[float, Alias("temp")]` gives a field other names. Nested rows,
    lists and `X | None` are understood, times in ISO form or as seconds, ms, µs or ns since 1970. Arguments as for `csv`.
    """
    return connector(
        "jsonl",
        path,
        speed=speed,
        malformed=malformed,
        follow=follow,
        roll_bytes=roll_bytes,
        roll_age=roll_age,
        at=at,
    )


def lines(
    path: str,
    *,
    follow: bool | None = None,
    format: str | None = None,  # noqa: A002  the option's name on the command line
    malformed: str | None = None,
    at: str = "",
) -> Connector:
    """Source: each line of a file (plain or gzip) is a text: a `str`, or the one field of the row. Arguments as for `csv`."""
    return connector("lines", path, follow=follow, format=format, malformed=malformed, at=at)


def stdout(*, format: str | None = None, at: str = "") -> Connector:  # noqa: A002  the option's name on the command line
    """Sink: standard output, as `csv` (default) or `jsonl`."""
    return connector("stdout", format=format, at=at)


def log(
    name: str,
    *,
    partitions: int | None = None,
    max_bytes: str | None = None,
    max_age: str | None = None,
    segment_bytes: str | None = None,
    key: str | None = None,
    at: str = "",
) -> Connector:
    """Sink: a log on the node's disk that readers with a grant (Spark, for example) follow over the network.

    Args:
        name: of the log in the whole network; letters, digits, `-`, `_`, `.`.
        partitions: parts that are read in parallel, 1 to 64; fixed when the log is begun (1).
        max_bytes: size above which the oldest rows go, like `64MiB` (1GiB).
        max_age: age above which rows go, like `12h` (7d).
        segment_bytes: size of one file; rows go file by file (16MiB, at most a quarter of a partition's share).
        key: a field: rows with equal values stand in one partition, in order. Without it batches take turns.
        at: the node that keeps the log.
    """
    return connector(
        "log",
        name,
        partitions=partitions,
        max_bytes=max_bytes,
        max_age=max_age,
        segment_bytes=segment_bytes,
        key=key,
        at=at,
    )


def mqtt(
    url: str,
    *,
    qos: int | None = None,
    session: str | None = None,
    format: str | None = None,  # noqa: A002  the option's name on the command line
    retain: bool | None = None,
    will: str | None = None,
    will_topic: str | None = None,
    credentials: str | None = None,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    client: str | None = None,
    version: int | None = None,
    malformed: str | None = None,
    at: str = "",
) -> Connector:
    """Messages of an MQTT broker, as source or sink. Needs `agiledart[mqtt]`.

    Args:
        url: `mqtt://HOST:PORT/FILTER`, or `mqtts://…` over TLS. Shared subscriptions are `$share/GROUP/FILTER`. The topic of a
            sink may hold fields: `alarms/{room}`.
        qos: 0 (at most once, the usual), 1 or 2.
        session: source: a name under which the broker keeps what comes while nobody reads (QoS 1 and 2); one reader a name.
        format: of a message: `json` (the usual), `csv`, `text`, `raw`; sources also `senml`, `msgpack`.
        retain: sink: the broker keeps the last message of each topic for those who come later.
        will, will_topic: sink: what the broker says when the sink is gone without a word, and where.
        credentials: name of a file of the node with `user:password`; never in the URL.
        ca, cert, key: PEM files of the node, for `mqtts:`.
        client: identifier; a new one at each start when left out.
        version: 5 (the usual) or 3 for 3.1.1.
        malformed: source: as for `csv`.
        at: the node that reads or writes.
    """
    kind, colon, path = url.partition(":")
    if kind not in ("mqtt", "mqtts") or not colon:
        raise ConfigurationError(f"{url!r} is no broker's address: write mqtt://HOST:PORT/TOPIC, or mqtts://…")
    return connector(
        kind,
        path,
        qos=qos,
        session=session,
        format=format,
        retain=retain,
        will=will,
        will_topic=will_topic,
        credentials=credentials,
        ca=ca,
        cert=cert,
        key=key,
        client=client,
        version=version,
        malformed=malformed,
        at=at,
    )


def kafka(
    url: str,
    *,
    group: str | None = None,
    begin: str | None = None,
    to: str | None = None,
    share: str | None = None,
    format: str | None = None,  # noqa: A002  the option's name on the command line
    key: str | None = None,
    batch: int | None = None,
    max_bytes: int | None = None,
    credentials: str | None = None,
    sasl: str | None = None,
    ca: str | None = None,
    cert: str | None = None,
    cert_key: str | None = None,
    malformed: str | None = None,
    at: str = "",
) -> Connector:
    """Messages of a topic of Kafka, as source or sink. Needs `agiledart[kafka]`.

    Args:
        url: `kafka://HOST:PORT[,HOST:PORT]/TOPIC`, or `kafkas://…` over TLS.
        group: source: it is told how far the source is; partitions are not dealt out by it.
        begin: source, `from` in a URL: `earliest` (the usual without a group), `latest`, `committed` (where the group is; the
            usual with one) or an ISO time.
        to: source: `end`: up to what is there when it begins, in order of the messages' times; it ends then.
        share: source: `2/3`: the second of three sources that share the partitions.
        format: of a message: `json` (the usual), `csv`, `text`, `raw`; sources also `senml`, `msgpack`.
        key: sink: fields, with commas between: rows with equal values stand in one partition, in order.
        batch: sink: messages that are sent at once (1000).
        max_bytes: sink: the largest message (1 MiB).
        credentials: name of a file of the node with `user:password`; never in the URL.
        sasl: how they are shown: `plain` (the usual), `scram-sha-256`, `scram-sha-512`.
        ca, cert, cert_key: PEM files of the node, for `kafkas:`.
        malformed: source: as for `csv`.
        at: the node that reads or writes.
    """
    kind, colon, path = url.partition(":")
    if kind not in ("kafka", "kafkas") or not colon:
        raise ConfigurationError(f"{url!r} is no address of Kafka: write kafka://HOST:PORT/TOPIC, or kafkas://…")
    more: dict[str, object] = {"from": begin}
    return connector(
        kind,
        path,
        group=group,
        to=to,
        share=share,
        format=format,
        key=key,
        batch=batch,
        max_bytes=max_bytes,
        credentials=credentials,
        sasl=sasl,
        ca=ca,
        cert=cert,
        cert_key=cert_key,
        malformed=malformed,
        at=at,
        **more,
    )


def sql(
    name: str,
    *,
    table: str,
    cursor: str | None = None,
    poll: str | None = None,
    key: str | None = None,
    create: bool | None = None,
    malformed: str | None = None,
    at: str = "",
) -> Connector:
    """A table of a database, as source or sink, through SQLAlchemy. Needs `agiledart[sql]` and the database's driver.

    Args:
        name: of a credential of the node, a file of mode 600 that holds SQLAlchemy's URL with its password.
        table: with its schema where it has one, `public.minutes`.
        cursor: source: the unique, growing column in whose order rows are read; the primary key when left out.
        poll: source: look for new rows so often, `5s`; without it the source ends with the table.
        key: sink: columns, with commas between, that make a row the same one: it takes the place of its like.
        create: sink: make the table from the fields of the rows when there is none.
        malformed: source: as for `csv`.
        at: the node that reads or writes.
    """
    return connector(
        "sql", name, table=table, cursor=cursor, poll=poll, key=key, create=create, malformed=malformed, at=at
    )


def http(
    url: str,
    *,
    listen: bool | None = None,
    format: str | None = None,  # noqa: A002  the option's name on the command line
    max_bytes: int | None = None,
    batch: int | None = None,
    credentials: str | None = None,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    malformed: str | None = None,
    at: str = "",
) -> Connector:
    """Source: rows that others post here (`listen=True`). Sink: rows posted to a server, as JSON arrays.

    Args:
        url: `http://HOST:PORT/PATH` or `https://…`. A source without a host listens on loopback.
        listen: a source; 202 comes when rows are on their way, 429 when too much waits.
        format: source: of a body, `json` (the usual), `csv`, `text`, `raw`, `senml`, `msgpack`.
        max_bytes: source: of a body, 1 MiB unless told.
        batch: sink: rows of a request at the most, 100 unless told.
        credentials: name of a file of the node with the bearer token; never in the URL.
        ca: sink: a PEM file of authorities. `cert`, `key`: source: of this server.
        malformed: source: as for `csv`.
        at: the node that reads or writes.
    """
    kind, colon, path = url.partition(":")
    if kind not in ("http", "https") or not colon:
        raise ConfigurationError(f"{url!r} is no address: write http://HOST:PORT/PATH, or https://…")
    return connector(
        kind,
        path,
        listen=listen,
        format=format,
        max_bytes=max_bytes,
        batch=batch,
        credentials=credentials,
        ca=ca,
        cert=cert,
        key=key,
        malformed=malformed,
        at=at,
    )


def influx(
    url: str,
    *,
    measurement: str,
    tags: str | None = None,
    time: str | None = None,
    version: int | None = None,
    org: str | None = None,
    credentials: str | None = None,
    batch: int | None = None,
    at: str = "",
) -> Connector:
    """Sink: points of InfluxDB, or of whatever speaks its line protocol.

    Args:
        url: `influx://HOST:PORT/BUCKET`, or `influxs://…` over TLS.
        measurement: of all points.
        tags: fields, with commas between, that become tags; the others become values.
        time: the field with the point's time; the server's clock without it.
        version: 2 (the usual), 1 or 3.
        org: of version 2.
        credentials: name of a file of the node with the token.
        batch: points of a request at the most, 1,000 unless told.
        at: the node that writes.
    """
    kind, colon, path = url.partition(":")
    if kind not in ("influx", "influxs") or not colon:
        raise ConfigurationError(f"{url!r} is no address: write influx://HOST:PORT/BUCKET, or influxs://…")
    return connector(
        kind,
        path,
        measurement=measurement,
        tags=tags,
        time=time,
        version=version,
        org=org,
        credentials=credentials,
        batch=batch,
        at=at,
    )


def taxi(
    *,
    seed: int | None = None,
    count: int | None = None,
    start: datetime | None = None,
    speed: float | None = None,
    at: str = "",
) -> Connector:
    """Source: generated taxi trips in the format of the DEBS 2015 challenge, the same for the same seed.

    Args:
        seed: of the generator.
        count: how many trips; without end when left out.
        start: time of the first trips.
        speed: paced by event time, so many times faster than it happened.
        at: the node that generates them.
    """
    beginning = None if start is None else start.isoformat()
    return connector("taxi", seed=seed, count=count, start=beginning, speed=speed, at=at)


def records(rows: Sequence[T] | Callable[[], Iterable[T]], *, row_type: type[T] | None = None) -> Source[T]:
    """Source: rows of this process, or a callable that returns them; for tests and `agiledart run`."""
    return records_source(rows, row_type)


def parquet(
    path: str,
    *,
    speed: float | None = None,
    roll_bytes: str | None = None,
    roll_age: str | None = None,
    at: str = "",
) -> Connector:
    """A Parquet file (as source also a folder or a pattern), whose columns have the names of the rows' fields. Needs
    `agiledart[columns]`. Arguments as for `csv`.
    """
    return connector("parquet", path, speed=speed, roll_bytes=roll_bytes, roll_age=roll_age, at=at)


def batches(make: Callable[[], Iterable[Any]], *, row_type: type[T] | None = None) -> Source[T]:
    """Source: a callable of this process that yields record batches, dicts of arrays or data frames. Needs `agiledart[columns]`."""
    return Connector("batches", row_type=row_type, payload=make)


def null() -> Connector:
    """Sink: counts rows and latencies, keeps nothing."""
    return connector("null")


collect: Any = connector("collect")
"""Sink: keeps the rows for `agiledart.testing.run_local`, which returns them."""
