"""Verb `score`: rows with the result of a model, whose file is a row of a control stream."""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from agiledart_dataflow.data.schema import fields_of
from agiledart_dataflow.expressions.row_expression import made_row_type
from agiledart_dataflow.graph.graph import KeyedRows, Rows, needs_name
from agiledart_dataflow.graph.keyed_verbs import keyed_by, with_state
from agiledart_dataflow.operators.model_scorer import ModelInUse, ModelScorer, Unscored
from agiledart_dataflow.user_code.callsite import call_site
from agiledart_kernel.limits import KEY_GROUPS


def spread(row: Any) -> int:
    """Return a key that spreads rows over instances; equal on every node."""
    return crc32(repr(row).encode()) % KEY_GROUPS


class ScoredRow:
    """Row with its score and the version of the model."""

    def __init__(self, row_type: Any) -> None:
        self._row_type = row_type

    def __call__(self, row: Any, score: Any, version: str) -> Any:
        old = row if isinstance(row, tuple) else tuple(vars(row).values())
        return self._row_type(*old, score, version)


def scored(
    rows: Rows, name: str, models: object, inputs: Sequence[str], output: str, returns: Any, on_error: Any
) -> Rows:
    """Return the rows with two more fields: the score, and the version of the model."""
    where = call_site()
    needs_name(name, "score", "quality")
    fields = {field.name: field.type for field in fields_of(rows.type)}
    if not isinstance(inputs, list | tuple) or not inputs:
        raise where.error("inputs is a list of the fields that the model takes, in its order")
    unknown = [field for field in inputs if field not in fields]
    if unknown:
        raise where.error(f"the rows of {rows.step.name!r} have no field {unknown[0]!r}; they have {', '.join(fields)}")
    if returns not in (int, float):
        raise where.error(f"returns is int or float, not {returns!r}")
    version = f"{output}_version"
    if output in fields or version in fields:
        raise where.error(f"the rows have a field {output!r} or {version!r} already: choose another output=")
    if not isinstance(models, Rows) or models.graph is not rows.graph or models.type is not bytes:
        raise where.error(
            "models is a stream of bytes of the same topology, such as"
            " topology.reference('models', whole_file('quality.onnx'), rows=bytes)"
        )
    row_type = made_row_type(name, {**fields, output: returns | None, version: str}, where)
    keyed: KeyedRows = keyed_by(rows, spread, (), int)
    places = list(fields)
    scorer = ModelScorer([places.index(field) for field in inputs], ScoredRow(row_type), returns)
    return with_state(
        keyed,
        name,
        "broadcast",
        scorer,
        Unscored,
        row_type,
        models,
        key_type=int,
        shared_type=ModelInUse,
        key_functions=(keyed.key_of, None),
        options=(("inputs", ",".join(inputs)), ("output", output)),
        on_error=on_error,
    )
