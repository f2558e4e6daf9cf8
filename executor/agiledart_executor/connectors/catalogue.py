"""Every kind of source and sink of this package, as data: shown by `agiledart plugins list`, opened by `opening.py`."""

from typing import Final

from agiledart_dataflow.plan.connector_kinds import ConnectorKind, Guarantee

_LINES: Final = ("follow", "format", "header")

_AGAIN: Final = Guarantee(
    "read again from the beginning; exactly-once: from the last epoch", goes_back=True, acknowledges="position"
)
_LOST: Final = Guarantee("may lose what came meanwhile")
_OBJECTS: Final = Guarantee("made again", goes_back=True)

SOURCES: Final = {
    kind.name: kind
    for kind in (
        ConnectorKind("batches", "record batches, arrays or data frames of a callable", _OBJECTS, opens="batches:open_source"),
        ConnectorKind("call", "rows that a callable returns", _OBJECTS, opens="memory:open_source"),
        ConnectorKind("csv", "CSV files, plain or gzip", _AGAIN, _LINES, opens="line_source:open_csv"),
        ConnectorKind("jsonl", "files of JSON objects, one a line", _AGAIN, _LINES, opens="line_source:open_jsonl"),
        ConnectorKind("lines", "files of texts, one a line", _AGAIN, _LINES, opens="line_source:open_texts"),
        ConnectorKind("list", "rows of a list", _OBJECTS, opens="memory:open_source"),
        ConnectorKind(
            "mqtt", "messages of an MQTT broker", Guarantee("QoS 1 and 2 with a session: may repeat; QoS 0: may lose",
            acknowledges="when read (QoS 1, 2)"),
            ("client", "credentials", "format", "qos", "session", "version"),
            "mqtt", "paho", "mqtt.source:open_source", "mqtt.probe:probe_source",
        ),
        ConnectorKind(
            "mqtts", "the same over TLS", Guarantee("QoS 1 and 2 with a session: may repeat; QoS 0: may lose",
            acknowledges="when read (QoS 1, 2)"),
            ("ca", "cert", "client", "credentials", "format", "key", "qos", "session", "version"),
            "mqtt", "paho", "mqtt.source:open_source", "mqtt.probe:probe_source",
        ),
        ConnectorKind("parquet", "Parquet files", _AGAIN, (), "columns", "pyarrow", "batches:open_source"),
        ConnectorKind("tcp", "lines of TCP connections", _LOST, ("format", "listen", "reconnect"), opens="line_socket:open_source"),
    )
}  # fmt: skip

_ROLLS: Final = ("roll_age", "roll_bytes")
_TORN: Final = Guarantee("written anew from the beginning of the run; exactly-once: cut back to the last epoch")

SINKS: Final = {
    kind.name: kind
    for kind in (
        ConnectorKind("collect", "a list of this process", Guarantee("kept in memory"), opens="memory:open_sink"),
        ConnectorKind("csv", "a CSV file", _TORN, ("null", *_ROLLS), opens="text_sink:open_sink"),
        ConnectorKind("jsonl", "a file of JSON objects, one a line", _TORN, _ROLLS, opens="text_sink:open_sink"),
        ConnectorKind(
            "log", "a log on the node's disk, for readers over the network",
            Guarantee("rows of one attempt once; exactly-once: committed with the epoch"),
            ("partitions", "max_bytes", "max_age", "segment_bytes", "key"), opens="log_sink:open_sink",
        ),
        ConnectorKind(
            "mqtt", "messages to an MQTT broker", Guarantee("may repeat; QoS 0: may lose"),
            ("client", "credentials", "format", "qos", "retain", "version", "will", "will_topic"),
            "mqtt", "paho", "mqtt.sink:open_sink", "mqtt.probe:probe_sink",
        ),
        ConnectorKind(
            "mqtts", "the same over TLS", Guarantee("may repeat; QoS 0: may lose"),
            ("ca", "cert", "client", "credentials", "format", "key", "qos", "retain", "version", "will", "will_topic"),
            "mqtt", "paho", "mqtt.sink:open_sink", "mqtt.probe:probe_sink",
        ),
        ConnectorKind("null", "nowhere: rows are counted", Guarantee("nothing is kept"), opens="memory:open_sink"),
        ConnectorKind(
            "parquet", "Parquet files, rolled by size and age, whole when they have their names",
            Guarantee("files that were whole stay, the last is lost and written again"), _ROLLS,
            "columns", "pyarrow", "parquet_sink:open_sink",
        ),
        ConnectorKind("stdout", "standard output", Guarantee("may repeat"), ("format",), opens="text_sink:open_sink"),
    )
}  # fmt: skip
