"""Sources and sinks as values; the run of the topology opens them.

On the command line they are URLs: `csv:trips.csv.gz?speed=60@pi2`, `taxi:?seed=7&count=10000`, `stdout:`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    delimiter: str | None = None,
    decimal: str | None = None,
    quote: str | None = None,
    encoding: str | None = None,
    skip: int | None = None,
    zone: str | None = None,
    places: int | None = None,
    roll_bytes: str | None = None,
    roll_age: str | None = None,
    rejected: str | None = None,
    dead_letters: str | None = None,
    at: str = "",
) -> Connector:
    """Return a CSV file as source (plain, or packed by gzip, bzip2, xz or Zstandard) or as sink.

    Args:
        path: of the file on the node that reads or writes it; for a source also a folder or a pattern (`in/*.csv`).
        speed: source: pace by event time, as a multiple of real time; default as fast as possible.
        header: source: whether the first line names the columns. By default it does if it names all fields of the rows. Then
            columns are matched by name, and others are ignored.
        null: text for None; default `NULL`. A source takes it and an empty column for None where the field may be None, and
            knows several texts, separated by commas.
        malformed: source: `count` malformed records (the default; the first few are reported), or `fail` at the first.
        follow: source: also read appended lines and new files, without end; file rotation is supported.
        format: source: format of the lines, if not CSV: `json`, `text`, `senml`, `raw`.
        delimiter: character between columns, default `,`; also `tab`.
        decimal: character before the places of numbers, default `.`; with `,` the delimiter is another.
        quote: source: character around texts with delimiters or line ends, default `"`; `none`: there is none.
        encoding: source: of the files, such as `cp1252` or `utf-16`; default `utf-8`. Lines with other bytes are malformed.
        skip: source: lines to pass over at the beginning of each file, before a header.
        zone: source: zone of times that state none, such as `Europe/Berlin`; default UTC.
        places: sink: most decimal places of numbers; by default all, so that they are read back equal.
        roll_bytes, roll_age: sink: begin a new file (`NAME-00001.csv`, …) at this size, like `64MiB`, or age, like `1h`; files
            that are complete lose the ending `.part`.
        rejected: sink: for rows that it or its system cannot take: `count` (the default; the first few are reported), `fail`
            (the application ends), or `dead_letter` (also written to the file `dead_letters`).
        dead_letters: sink: file of the node for rejected rows.
        at: node that reads or writes the file.
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
        delimiter=delimiter,
        decimal=decimal,
        quote=quote,
        encoding=encoding,
        skip=skip,
        zone=zone,
        places=places,
        roll_bytes=roll_bytes,
        roll_age=roll_age,
        rejected=rejected,
        dead_letters=dead_letters,
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
    """Return a source of lines from a TCP connection, unencrypted: for programs on the same machine.

    Args:
        host, port: address to connect to; with `listen` the address to listen on ("" for 127.0.0.1).
        listen: wait for connections; several at the same time are possible.
        reconnect: when the peer closes, connect again or wait for the next connection.
        format: format of the lines: `csv` (the default), `json`, `text`, `senml`, `raw`.
        at: node that reads.
    """
    return connector("tcp", f"{host}:{port}", listen=listen, reconnect=reconnect, format=format, at=at)


def jsonl(
    path: str,
    *,
    speed: float | None = None,
    malformed: str | None = None,
    follow: bool | None = None,
    encoding: str | None = None,
    zone: str | None = None,
    roll_bytes: str | None = None,
    roll_age: str | None = None,
    rejected: str | None = None,
    dead_letters: str | None = None,
    at: str = "",
) -> Connector:
    """Return a file of JSON objects, one per line, as source (plain or gzip) or as sink.

    As source it fills the fields of the rows by name; `Annotated[float, Alias("temp")]` gives a field other names. Nested rows,
    lists and `X | None` are supported, times in ISO form or as seconds, ms, µs or ns since 1970. Arguments as for `csv`.
    """
    return connector(
        "jsonl",
        path,
        speed=speed,
        malformed=malformed,
        follow=follow,
        encoding=encoding,
        zone=zone,
        roll_bytes=roll_bytes,
        roll_age=roll_age,
        rejected=rejected,
        dead_letters=dead_letters,
        at=at,
    )


def lines(
    path: str,
    *,
    follow: bool | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    format: str | None = None,  # noqa: A002  the option's name on the command line
    malformed: str | None = None,
    at: str = "",
) -> Connector:
    """Return a source in which each line of a file (plain or gzip) is a text: a `str`, or the only field of the row.

    Arguments as for `csv`; with `header` each file's first line is passed over.
    """
    return connector(
        "lines",
        path,
        follow=follow,
        header=header,
        encoding=encoding,
        format=format,
        malformed=malformed,
        at=at,
    )


def stdout(
    *,
    format: str | None = None,  # noqa: A002  the option's name on the command line
    rejected: str | None = None,
    dead_letters: str | None = None,
    at: str = "",
) -> Connector:
    """Return a sink to standard output, as `csv` (default) or `jsonl`. `rejected`, `dead_letters`: as for `csv`."""
    return connector("stdout", format=format, rejected=rejected, dead_letters=dead_letters, at=at)


def feed(name: str, *, at: str = "") -> Connector:
    """Return a source of the rows that writers such as Spark publish to a feed (`agiledart feed create NAME`).

    Made for broadcast state: `keyed.connect(topology.source("usual", feed("usual-durations"), …))`.

    Args:
        name: of the feed, which may lie on any node.
        at: node that runs the source.
    """
    return connector("feed", name, at=at)


def log(
    name: str,
    *,
    partitions: int | None = None,
    max_bytes: str | None = None,
    max_age: str | None = None,
    segment_bytes: str | None = None,
    columns: str | None = None,
    key: str | None = None,
    rejected: str | None = None,
    dead_letters: str | None = None,
    at: str = "",
) -> Connector:
    """Return a sink that writes a log on the node's disk; readers with a grant, such as Spark, follow it over the network.

    Args:
        name: of the log in the whole network; letters, digits, `-`, `_`, `.`.
        partitions: parts for parallel readers, 1 to 64; fixed when the log is created (default 1).
        max_bytes: size above which the oldest rows are removed, like `64MiB` (default 1GiB).
        max_age: age above which rows are removed, like `12h` (default 7d).
        segment_bytes: size of one file; rows are removed file by file (default 16MiB, at most a quarter of a partition's share).
        columns: `auto` (default): where pyarrow is installed, full files are rewritten by columns in the background, which readers
            such as Spark read at a third of the cost; `never`.
        key: a field: rows with equal values go to one partition, in order. Without it batches alternate between partitions.
        rejected, dead_letters: as for `csv`.
        at: node that stores the log.
    """
    return connector(
        "log",
        name,
        partitions=partitions,
        max_bytes=max_bytes,
        max_age=max_age,
        segment_bytes=segment_bytes,
        columns=columns,
        key=key,
        rejected=rejected,
        dead_letters=dead_letters,
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
    rejected: str | None = None,
    dead_letters: str | None = None,
    at: str = "",
) -> Connector:
    """Return messages of an MQTT broker as source or sink. Needs `agiledart[mqtt]`.

    Args:
        url: `mqtt://HOST:PORT/FILTER`, or `mqtts://…` over TLS. Shared subscriptions are `$share/GROUP/FILTER`. The topic of a
            sink may contain fields: `alarms/{room}`.
        qos: 0 (at most once, the default), 1 or 2.
        session: source: name under which the broker stores messages while the source is not connected (QoS 1 and 2);
            one reader a name.
        format: of a message: `json` (the default), `csv`, `text`, `raw`; sources also `senml`, `msgpack`.
        retain: sink: the broker keeps the last message of each topic for later subscribers.
        will, will_topic: sink: message and topic that the broker publishes when the sink disconnects unexpectedly.
        credentials: name of a file of the node with `user:password`; never in the URL.
        ca, cert, key: PEM files of the node, for `mqtts:`.
        client: identifier; by default a new one at each start.
        version: 5 (the default) or 3 for 3.1.1.
        malformed: source: as for `csv`.
        rejected, dead_letters: sink: as for `csv`.
        at: node that reads or writes.
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
        rejected=rejected,
        dead_letters=dead_letters,
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
    rejected: str | None = None,
    dead_letters: str | None = None,
    at: str = "",
) -> Connector:
    """Return messages of a topic of Kafka as source or sink. Needs `agiledart[kafka]`.

    Args:
        url: `kafka://HOST:PORT[,HOST:PORT]/TOPIC`, or `kafkas://…` over TLS.
        group: source: consumer group for committed offsets; it does not assign partitions.
        begin: source, `from` in a URL: `earliest` (the default without a group), `latest`, `committed` (offset of the group; the
            default with one) or an ISO time.
        to: source: `end`: end after the messages that exist at the start, read in order of their times.
        share: source: `2/3`: the second of three sources that share the partitions.
        format: of a message: `json` (the default), `csv`, `text`, `raw`; sources also `senml`, `msgpack`.
        key: sink: fields, separated by commas: rows with equal values go to one partition, in order.
        batch: sink: number of messages sent at once (default 1000).
        max_bytes: sink: size of the largest message (default 1 MiB).
        credentials: name of a file of the node with `user:password`; never in the URL.
        sasl: mechanism of authentication: `plain` (the default), `scram-sha-256`, `scram-sha-512`.
        ca, cert, cert_key: PEM files of the node, for `kafkas:`.
        malformed: source: as for `csv`.
        rejected, dead_letters: sink: as for `csv`.
        at: node that reads or writes.
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
        rejected=rejected,
        dead_letters=dead_letters,
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
    rejected: str | None = None,
    dead_letters: str | None = None,
    at: str = "",
) -> Connector:
    """Return a table of a database as source or sink, through SQLAlchemy. Needs `agiledart[sql]` and the database's driver.

    Args:
        name: of a credential of the node, a file of mode 600 with SQLAlchemy's URL and its password.
        table: name of the table, if necessary with its schema: `public.minutes`.
        cursor: source: the unique, growing column in whose order rows are read; default the primary key.
        poll: source: interval of queries for new rows, like `5s`; without it the source ends with the table.
        key: sink: columns, separated by commas, that identify a row: a row replaces an earlier one with the same key.
        create: sink: create a missing table from the fields of the rows.
        malformed: source: as for `csv`.
        rejected, dead_letters: sink: as for `csv`.
        at: node that reads or writes.
    """
    return connector(
        "sql",
        name,
        table=table,
        cursor=cursor,
        poll=poll,
        key=key,
        create=create,
        malformed=malformed,
        rejected=rejected,
        dead_letters=dead_letters,
        at=at,
    )


def http(
    url: str,
    *,
    listen: bool | None = None,
    format: str | None = None,  # noqa: A002  the option's name on the command line
    max_bytes: int | None = None,
    batch: int | None = None,
    body: str | None = None,
    template: str | None = None,
    headers: Mapping[str, str] | None = None,
    credentials: str | None = None,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    malformed: str | None = None,
    rejected: str | None = None,
    dead_letters: str | None = None,
    at: str = "",
) -> Connector:
    """Return a source of rows that clients post here (`listen=True`), or a sink that posts rows to a server.

    Args:
        url: `http://HOST:PORT/PATH` or `https://…`. A source without a host listens on loopback.
        listen: a source; it answers 202 for accepted rows, 429 when too many rows wait.
        format: source: of a body, `json` (the default), `csv`, `text`, `raw`, `senml`, `msgpack`.
        max_bytes: source: greatest size of a body, default 1 MiB.
        batch: sink: greatest number of rows of a request, default 100.
        body: sink: `array` (the default) of rows as JSON, or `row`: each row a request of its own.
        template: sink: text of a request of each row, where `{field}` stands for a value; `@FILE` reads it from a file.
        headers: sink: further headers; a value `credential:NAME` is that of a file of the node.
        credentials: name of a file of the node with the bearer token; never in the URL.
        ca: sink: a PEM file of authorities. `cert`, `key`: source: of this server.
        malformed: source: as for `csv`.
        rejected, dead_letters: sink: as for `csv`.
        at: node that reads or writes.
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
        body=body,
        template=template,
        credentials=credentials,
        ca=ca,
        cert=cert,
        key=key,
        malformed=malformed,
        rejected=rejected,
        dead_letters=dead_letters,
        at=at,
        **{f"header.{name}": value for name, value in (headers or {}).items()},
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
    rejected: str | None = None,
    dead_letters: str | None = None,
    at: str = "",
) -> Connector:
    """Return a sink of points of InfluxDB, or of another server with its line protocol.

    Args:
        url: `influx://HOST:PORT/BUCKET`, or `influxs://…` over TLS.
        measurement: of all points.
        tags: fields, separated by commas, that become tags; the others become values.
        time: the field with the point's time; the server's clock without it.
        version: 2 (the default), 1 or 3.
        org: of version 2.
        credentials: name of a file of the node with the token.
        batch: greatest number of points of a request, default 1,000.
        rejected, dead_letters: as for `csv`.
        at: node that writes.
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
        rejected=rejected,
        dead_letters=dead_letters,
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
    """Return a source of generated taxi trips in the format of the DEBS 2015 challenge, the same for the same seed.

    Args:
        seed: of the generator.
        count: number of trips; default without end.
        start: time of the first trips.
        speed: pace by event time, as a multiple of real time.
        at: node that generates them.
    """
    beginning = None if start is None else start.isoformat()
    return connector("taxi", seed=seed, count=count, start=beginning, speed=speed, at=at)


def whole_file(path: str, *, parts: bool | None = None, at: str = "") -> Connector:
    """Return a source with a single record: the bytes of a file of at most 4 MiB, such as a model.

    Args:
        path: of the file on the node that reads it.
        parts: for `score`: a file of more than 1 MiB, and at most 64 MiB, comes in parts.
        at: node that reads it.
    """
    return connector("file", path, parts=parts, at=at)


def plugin(kind: str, path: str = "", *, at: str = "", **options: str | float | bool | None) -> Connector:
    """Return a source or sink of another package, as it is written on a command line: `KIND:PATH?OPTION=VALUE`.

    Args:
        kind: name of the package's entry point.
        path: text before the question mark.
        at: node that reads or writes.
        options: of that kind; those that are None are left out.
    """
    return connector(kind, path, at=at, **options)


def records(rows: Sequence[T] | Callable[[], Iterable[T]], *, row_type: type[T] | None = None) -> Source[T]:
    """Return a source of rows of this process, or of a callable that returns them; for tests and `agiledart run`."""
    return records_source(rows, row_type)


def parquet(
    path: str,
    *,
    speed: float | None = None,
    roll_bytes: str | None = None,
    roll_age: str | None = None,
    rejected: str | None = None,
    dead_letters: str | None = None,
    at: str = "",
) -> Connector:
    """Return a Parquet file (as source also a folder or a pattern), whose columns have the names of the rows' fields. Needs
    `agiledart[columns]`. Arguments as for `csv`.
    """
    return connector(
        "parquet",
        path,
        speed=speed,
        roll_bytes=roll_bytes,
        roll_age=roll_age,
        rejected=rejected,
        dead_letters=dead_letters,
        at=at,
    )


def batches(make: Callable[[], Iterable[Any]], *, row_type: type[T] | None = None) -> Source[T]:
    """Return a source from a callable of this process that yields record batches, dicts of arrays or data frames.

    Needs `agiledart[columns]`.
    """
    return Connector("batches", row_type=row_type, payload=make)


def null() -> Connector:
    """Return a sink that counts rows and latencies and discards the rows."""
    return connector("null")


collect: Any = connector("collect")
"""Sink that keeps the rows for `agiledart.testing.run_local`, which returns them."""
