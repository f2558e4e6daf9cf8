"""JSON Schema of applications in YAML, for editors; made from the tables that the translator itself reads."""

from typing import Any

from agiledart_dataflow.plan.delivery import DELIVERIES
from agiledart_executor.query_files.yaml_application import (
    ON_ERROR,
    OPTIONAL,
    PLACE,
    SCORE,
    SINK,
    SOURCE,
    STANDBYS,
    STEP,
    TOP,
    TYPES,
    VERBS,
    WINDOW,
)

SCHEMA_ID = "https://agiledart.dev/schemas/application-1.json"

_TEXTS: dict[str, str] = {
    "name": "Name of the application, or of a step; a later step reads it by this name.",
    "delivery": "Behaviour when a node dies.",
    "placement": "Strategy that chooses the nodes, and what it makes least, such as odp:response.",
    "slo": "Time that a row may take: until a sink has written it, or in a step; `agiledart status` shows the share that kept it.",
    "sources": "Streams that are read, by name.",
    "steps": "Work on the rows, in order; each step reads the one before, unless input: names another.",
    "sinks": "Where rows are written, by name.",
    "from": "Connector, for example mqtt://broker/rooms/+?format=json or csv:rooms.csv@pi2.",
    "to": "Connector, for example log:alarms or csv:alarms.csv.",
    "columns": "Column → type.",
    "event_time": "Column that tells when a row happened; windows need it.",
    "max_out_of_order": "Rows are sorted within this time; later ones are late.",
    "idle_timeout": "After this time without a reading the source no longer delays others.",
    "max_ahead": "A row whose time is further ahead of the node's clock waits.",
    "clock": "Time passes by rows (events) or by the node's clock (wall).",
    "overload": "While the mesh is slower than rows come: block, spool, shed_oldest or shed_sample.",
    "malformed": "Treatment of malformed records.",
    "input": "Stream to read; by default the one before.",
    "where": "Condition in SQL; rows for which it is not true are dropped.",
    "with": "New or replaced columns: name → expression in SQL.",
    "select": "The only columns that stay: name → expression in SQL.",
    "function": "FILE.py:NAME beside this file: a condition, or with columns: a function that returns rows.",
    "window": "Rows by event time.",
    "key": "Column, or list of columns, whose values have windows of their own.",
    "aggregate": "Results of the window: name → aggregate in SQL.",
    "having": "Condition in SQL on the results.",
    "score": "Adds the result of an ONNX model, and the version of the model.",
    "model": "File of the model, such as quality.onnx@pi2, or a connector with one record of bytes.",
    "inputs": "Columns that the model takes, in its order.",
    "output": "Name of the new column; the version of the model is NAME_version.",
    "on_error": "Treatment of a model that is damaged or takes other inputs: fail, or skip it and go on.",
    "union": "Streams with equal columns that become one.",
    "place": "Nodes that may run the step; a source or sink has its node in from: or to:, such as csv:rooms.csv@label:plant.",
    "standby": "1: another host holds the step's state ready, and takes it over at once when its host is lost.",
    "labels": "Labels that a node must have, all of them.",
    "zone": "Only nodes of this zone.",
    "on": "Only these nodes.",
    "tumbling": "Length of windows that follow each other.",
    "hopping": "Length of windows that overlap; every: how often one begins.",
    "every": "Time between the beginnings of hopping windows.",
    "session": "Silence that ends a window.",
}

_TEXT = {"type": "string"}
_TEXTS_OR_ONE = {"oneOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_SPAN = {"type": "string", "pattern": r"^\s*(\d+(\.\d+)?\s*(ms|s|min|m|h|d)\s*)+$"}
_NAME = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_]*$"}
_EXPRESSIONS = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
    "propertyNames": _NAME,
}
_COLUMNS = {
    "type": "object",
    "propertyNames": _NAME,
    "additionalProperties": {"enum": [*TYPES, *(OPTIONAL + name for name in TYPES)]},
}
_KINDS: dict[str, Any] = {
    "delivery": {"enum": list(DELIVERIES)},
    "columns": _COLUMNS,
    "clock": {"enum": ["events", "wall"]},
    "malformed": {"enum": ["count", "fail", "dead_letter"]},
    "with": _EXPRESSIONS,
    "select": _EXPRESSIONS,
    "aggregate": _EXPRESSIONS,
    "function": {"type": "string", "pattern": r"^[A-Za-z][A-Za-z0-9_]*\.py:[A-Za-z][A-Za-z0-9_]*$"},
    "key": _TEXTS_OR_ONE,
    "union": {"type": "array", "items": _TEXT, "minItems": 2},
    "labels": _TEXTS_OR_ONE,
    "on": _TEXTS_OR_ONE,
    "inputs": {"type": "array", "items": _TEXT, "minItems": 1},
    "output": _NAME,
    "on_error": {"enum": list(ON_ERROR)},
    "standby": {"enum": [int(number) for number in STANDBYS]},
    **dict.fromkeys(
        ("max_out_of_order", "idle_timeout", "max_ahead", "tumbling", "hopping", "every", "session", "slo"), _SPAN
    ),
}


def yaml_schema() -> dict[str, Any]:
    """Return the schema."""
    step = _object(STEP)
    step["oneOf"] = [{"required": [verb]} for verb in VERBS]
    step["properties"]["window"] = {**_object(WINDOW), "description": _TEXTS["window"], "minProperties": 1}
    step["properties"]["place"] = {**_object(PLACE), "description": _TEXTS["place"], "minProperties": 1}
    step["properties"]["score"] = {**_object(SCORE), "description": _TEXTS["score"], "required": ["model", "inputs"]}
    document = _object(TOP)
    document["required"] = ["sources", "sinks"]
    properties = document["properties"]
    properties["sources"] |= {
        "type": "object",
        "additionalProperties": {**_object(SOURCE), "required": ["from", "columns"]},
    }
    properties["steps"] |= {"type": "array", "items": step}
    properties["sinks"] |= {"type": "object", "additionalProperties": {**_object(SINK), "required": ["to"]}}
    for name in ("sources", "sinks"):
        properties[name]["propertyNames"] = _NAME
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "AgileDART application",
        **document,
    }


def _object(names: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema of a mapping with these keys."""
    structured = ("sources", "steps", "sinks", "window", "score", "place")
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {**({} if name in structured else _KINDS.get(name, _TEXT)), "description": _TEXTS[name]}
            for name in names
        },
    }
