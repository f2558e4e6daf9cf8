"""Every kind of source and sink of this package, as data: shown by `agiledart plugins list`, opened by `opening.py`."""

from typing import Final

from agiledart_dataflow.plan.connector_kinds import ConnectorKind, Guarantee

_FORMAT: Final = ("decimal", "delimiter", "encoding", "format", "null", "quote", "zone")
"""Options of what is behind `format=`."""

_LINES: Final = (*_FORMAT, "follow", "header", "skip")

_AGAIN: Final = Guarantee(
    "read again from the beginning; exactly-once: from the last epoch", can_rewind=True, acknowledges="position"
)
_LOST: Final = Guarantee("may lose what came meanwhile; exactly-once: what was read comes from a log")
_OBJECTS: Final = Guarantee("made again", can_rewind=True)

_RECORDS: Final = Guarantee(
    "without a group read again from the beginning, with one may repeat; exactly-once: from the last epoch",
    can_rewind=True,
    acknowledges="position; the group every few seconds, exactly-once: with the epoch",
)
_KAFKA: Final = (*_FORMAT, "credentials", "from", "group", "sasl", "share", "to")
_KAFKA_TLS: Final = ("ca", "cert", "cert_key")

_PUSH: Final = (*_FORMAT, "credentials", "listen", "max_bytes")
_POLL: Final = ("cursor", "member", "poll", "since")
_POSTED: Final = Guarantee(
    "posted: none lost that a client sends again until it reads 202; may repeat. Asked for: may lose; with cursor= read again"
    " from the beginning",
    acknowledges="202 when rows are on their way, exactly-once: on the disk",
)

SOURCES: Final = {
    kind.name: kind
    for kind in (
        ConnectorKind("batches", "record batches, arrays or data frames of a callable", _OBJECTS,
            opens="files.columns_reader:open_source"),
        ConnectorKind("call", "rows that a callable returns", _OBJECTS, opens="memory:open_source"),
        ConnectorKind("csv", "CSV files, plain or packed", _AGAIN, _LINES, opens="files.line_reader:open_csv"),
        ConnectorKind(
            "feed", "rows that writers such as Spark publish to a feed",
            Guarantee("read again from the beginning; exactly-once: from the last epoch", can_rewind=True),
            opens="logs.feed_source:open_source", probes="logs.feed_source:probe_source",
        ),
        ConnectorKind(
            "file", "a whole file as one record of bytes", _AGAIN, ("parts",), opens="files.whole_file:open_source"
        ),
        ConnectorKind(
            "http", "rows that others post (`listen`), or that a server gives when it is asked", _POSTED, (*_PUSH, *_POLL),
            opens="http.http_source:open_source", probes="http.http_source:probe_source",
        ),
        ConnectorKind(
            "https", "the same over TLS", _POSTED, ("ca", "cert", "key", *_PUSH, *_POLL),
            opens="http.http_source:open_source", probes="http.http_source:probe_source",
        ),
        ConnectorKind("jsonl", "files of JSON objects, one a line", _AGAIN, _LINES, opens="files.line_reader:open_jsonl"),
        ConnectorKind(
            "kafka", "messages of a topic of Kafka", _RECORDS, _KAFKA, "kafka", "aiokafka",
            "kafka.kafka_reader:open_source", "kafka.kafka_probe:probe_source",
        ),
        ConnectorKind(
            "kafkas", "the same over TLS", _RECORDS, (*_KAFKA_TLS, *_KAFKA), "kafka", "aiokafka",
            "kafka.kafka_reader:open_source", "kafka.kafka_probe:probe_source",
        ),
        ConnectorKind("lines", "files of texts, one a line", _AGAIN, _LINES, opens="files.line_reader:open_texts"),
        ConnectorKind("list", "rows of a list", _OBJECTS, opens="memory:open_source"),
        ConnectorKind(
            "modbus", "registers of a device, over TCP or a serial line", Guarantee("may lose what was due meanwhile"),
            ("baud", "map", "mode", "poll", "unit"), "industry", "pymodbus", "modbus.modbus_poller:open_source",
            "modbus.modbus_poller:probe",
        ),
        ConnectorKind(
            "mqtt", "messages of an MQTT broker", Guarantee("QoS 1 and 2 with a session: may repeat; QoS 0: may lose",
            acknowledges="when read, exactly-once: on the disk (QoS 1, 2)"),
            (*_FORMAT, "client", "credentials", "qos", "session", "session_expiry", "version"),
            "mqtt", "paho", "mqtt.mqtt_reader:open_source", "mqtt.mqtt_probe:probe_source",
        ),
        ConnectorKind(
            "mqtts", "the same over TLS", Guarantee("QoS 1 and 2 with a session: may repeat; QoS 0: may lose",
            acknowledges="when read, exactly-once: on the disk (QoS 1, 2)"),
            (*_FORMAT, "ca", "cert", "client", "credentials", "key", "qos", "session", "session_expiry", "version"),
            "mqtt", "paho", "mqtt.mqtt_reader:open_source", "mqtt.mqtt_probe:probe_source",
        ),
        ConnectorKind("parquet", "Parquet files", _AGAIN, (), "columns", "pyarrow", "files.columns_reader:open_source"),
        ConnectorKind(
            "serial", "lines of a serial line", _LOST, (*_FORMAT, "baud", "mode"), "industry", "serial",
            "serial_line.serial_listener:open_source", "serial_line.serial_listener:probe",
        ),
        ConnectorKind(
            "sql", "rows of a table, in the order of growing columns", _AGAIN, ("cursor", "poll", "table"),
            "sql", "sqlalchemy", "sql.sql_reader:open_source", "sql.table_probe:probe_source",
        ),
        ConnectorKind("tcp", "lines of TCP connections", _LOST, (*_FORMAT, "listen", "reconnect"),
            opens="tcp.line_socket:open_source"),
        ConnectorKind(
            "ws", "messages of a WebSocket server", _LOST, (*_FORMAT, "credentials", "hello"),
            "websocket", "websockets", "websocket.websocket_listener:open_source", "websocket.websocket_session:probe",
        ),
        ConnectorKind(
            "wss", "the same over TLS", _LOST, (*_FORMAT, "ca", "credentials", "hello"),
            "websocket", "websockets", "websocket.websocket_listener:open_source", "websocket.websocket_session:probe",
        ),
    )
}  # fmt: skip

_HOOK: Final = ("batch", "ca", "credentials")
_FORMED: Final = (*_HOOK, "body", "header.", "template")
_POINTS: Final = (*_HOOK, "measurement", "org", "tags", "time", "version")
_HOOKED: Final = Guarantee("may repeat; the name of each row travels along, and an Idempotency-Key", delivers=True)
_SAME: Final = Guarantee(
    "may write again; with time=: idempotent, a point takes the place of the one that is there",
    delivers=True,
    idempotent_with="time",
)
_INSERTED: Final = Guarantee(
    "may insert again; with key=: idempotent, a row replaces its like", delivers=True, idempotent_with="key"
)
_PUBLISHED: Final = Guarantee(
    "may repeat; the name of each row travels along (MQTT 5); QoS 0: may lose", delivers=True, confirms_with="qos"
)
_SENT: Final = Guarantee("may repeat", delivers=True)
_PRODUCED: Final = Guarantee("may repeat; the name of each row travels along, in the header row-id", delivers=True)
_TO_KAFKA: Final = ("batch", "credentials", "format", "key", "max_bytes", "sasl")

_ROLLS: Final = ("roll_age", "roll_bytes")
_TORN: Final = Guarantee(
    "written again from the beginning of the run; exactly-once: truncated to the last epoch; rolled files get their names when it"
    " commits",
    can_abort=True,
)

SINKS: Final = {
    kind.name: kind
    for kind in (
        ConnectorKind("collect", "a list of this process", Guarantee("kept in memory"), opens="memory:open_sink"),
        ConnectorKind(
            "csv", "a CSV file", _TORN, ("decimal", "delimiter", "null", "places", *_ROLLS),
            opens="files.text_writer:open_sink",
        ),
        ConnectorKind("http", "rows posted to a server, as JSON or a text", _HOOKED, _FORMED, opens="http.webhook:open_sink"),
        ConnectorKind("https", "the same over TLS", _HOOKED, _FORMED, opens="http.webhook:open_sink"),
        ConnectorKind("influx", "points of InfluxDB 1, 2 or 3", _SAME, _POINTS, opens="influx.influx_writer:open_sink"),
        ConnectorKind("influxs", "the same over TLS", _SAME, _POINTS, opens="influx.influx_writer:open_sink"),
        ConnectorKind("jsonl", "a file of JSON objects, one a line", _TORN, _ROLLS, opens="files.text_writer:open_sink"),
        ConnectorKind(
            "kafka", "messages to a topic of Kafka", _PRODUCED, _TO_KAFKA, "kafka", "aiokafka",
            "kafka.kafka_writer:open_sink", "kafka.kafka_probe:probe_sink",
        ),
        ConnectorKind(
            "kafkas", "the same over TLS", _PRODUCED, (*_KAFKA_TLS, *_TO_KAFKA), "kafka", "aiokafka",
            "kafka.kafka_writer:open_sink", "kafka.kafka_probe:probe_sink",
        ),
        ConnectorKind(
            "log", "a log on the node's disk, for readers over the network",
            Guarantee("rows of one attempt once; exactly-once: committed with the epoch", can_abort=True),
            ("partitions", "max_bytes", "max_age", "segment_bytes", "columns", "key"), opens="logs.log_opener:open_sink",
        ),
        ConnectorKind(
            "mqtt", "messages to an MQTT broker", _PUBLISHED,
            ("client", "credentials", "format", "qos", "retain", "version", "will", "will_topic"),
            "mqtt", "paho", "mqtt.mqtt_writer:open_sink", "mqtt.mqtt_probe:probe_sink",
        ),
        ConnectorKind(
            "mqtts", "the same over TLS", _PUBLISHED,
            ("ca", "cert", "client", "credentials", "format", "key", "qos", "retain", "version", "will", "will_topic"),
            "mqtt", "paho", "mqtt.mqtt_writer:open_sink", "mqtt.mqtt_probe:probe_sink",
        ),
        ConnectorKind("null", "nowhere: rows are counted", Guarantee("nothing is kept"), opens="memory:open_sink"),
        ConnectorKind(
            "parquet", "Parquet files, rolled by size and age, whole when they have their names",
            Guarantee(
                "files that were whole stay, the last is lost and written again; exactly-once: named with their epoch",
                can_abort=True,
            ),
            _ROLLS,
            "columns", "pyarrow", "files.parquet_writer:open_sink",
        ),
        ConnectorKind(
            "sql", "a table of a database",
            _INSERTED,
            ("create", "key", "table"), "sql", "sqlalchemy", "sql.sql_writer:open_sink", "sql.table_probe:probe_sink",
        ),
        ConnectorKind("stdout", "standard output", Guarantee("may repeat"), ("format",), opens="files.text_writer:open_sink"),
        ConnectorKind(
            "ws", "messages to a WebSocket server", _SENT, ("credentials",),
            "websocket", "websockets", "websocket.websocket_writer:open_sink", "websocket.websocket_session:probe",
        ),
        ConnectorKind(
            "wss", "the same over TLS", _SENT, ("ca", "credentials"),
            "websocket", "websockets", "websocket.websocket_writer:open_sink", "websocket.websocket_session:probe",
        ),
    )
}  # fmt: skip
