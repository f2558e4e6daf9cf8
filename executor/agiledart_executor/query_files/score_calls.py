"""`ScoreCalls`: SCORE('quality.onnx', celsius, …) and SCORE_VERSION of the same in the list of a SELECT.

Each model with its columns becomes a step before the SELECT, however often the list names it.
"""

from collections.abc import Iterable
from typing import Any, Final

from agiledart_executor.query_files import python_code as py
from agiledart_executor.query_files.application_code import ApplicationCode, Relation
from agiledart_executor.query_files.column_types import NUMBERS, ColumnType, TypedCode
from agiledart_executor.query_files.join_clause import Visible
from agiledart_executor.query_files.model_connector import model_connector
from agiledart_executor.query_files.relation_scope import RelationScope
from agiledart_executor.query_files.sql_text import SqlText
from agiledart_executor.query_files.text_place import TextPlace

SCORE: Final = "SCORE"
VERSION: Final = "SCORE_VERSION"
FORM: Final = "SCORE('quality.onnx@pi2', column, …)"


def is_score_call(node: Any) -> bool:
    """Return whether a node of the parsed text is one of the two functions."""
    return node.key == "anonymous" and node.name.upper() in (SCORE, VERSION)


class ScoreCalls:
    """Translator of the models of one SELECT.

    Args:
        text: the SQL.
        code: takes the steps.
        scope: takes the names of the models' parameters.
        place: of the statement.
    """

    def __init__(self, text: SqlText, code: ApplicationCode, scope: RelationScope, place: TextPlace) -> None:
        self._text, self._code, self._scope, self._place = text, code, scope, place
        self._outputs: dict[tuple[str, ...], str] = {}

    def refuse(self, node: Any) -> None:
        """Refuse the functions where no step can stand before them."""
        if is_score_call(node):
            self._text.place_of_node(node, self._place).refuse(
                f"{node.name.upper()} stands in the list of a SELECT without GROUP BY: give it a name there,"
                " and use the name in a query around that one"
            )

    def apply(self, items: Iterable[Any], relation: Relation, visible: Visible, wanted: str) -> Relation:
        """Add a step for each model of a list of columns, and return the rows with their scores."""
        for call in [part for item in items for part in item.walk() if is_score_call(part)]:
            relation = self._scored(call, relation, visible, wanted)
        return relation

    def translate(self, node: Any) -> TypedCode | None:
        """Return the column of a call; None for everything else."""
        if not is_score_call(node):
            return None
        output = self._outputs[_key(node)]
        if node.name.upper() == VERSION:
            return TypedCode(py.column(f"{output}_version"), ColumnType("text", nullable=False))
        return TypedCode(py.column(output), ColumnType("float", nullable=True))

    def _scored(self, call: Any, relation: Relation, visible: Visible, wanted: str) -> Relation:
        place = self._text.place_of_node(call, self._place)
        model, *columns = call.expressions or [None]
        if model is None or model.key != "literal" or not model.is_string or not columns:
            place.refuse(f"write {FORM}: the model first, in quotes, then its inputs")
        fields = [self._field(column, visible) for column in columns]
        if _key(call) in self._outputs:
            return relation
        connector = model_connector(model.this, self._text.place_of_node(model, place))
        number = len(self._outputs)
        taken = {*relation.columns, *(f"{name}_version" for name in relation.columns)}
        while (output := f"score_{number}") in taken or f"{output}_version" in relation.columns:
            number += 1
        self._outputs[_key(call)] = output
        parameter = self._scope.reserve_like(f"{wanted}_model", place)
        return self._code.score(relation, self._code.model(parameter, connector), fields, output, f"{wanted}-score")

    def _field(self, node: Any, visible: Visible) -> str:
        """Return the field of an input of the model."""
        place = self._text.place_of_node(node, self._place)
        if node.key != "column":
            place.refuse(f"a model takes columns: compute {node.sql()[:60]} AS name in a query below this one")
        name = f"{node.table}.{node.name}" if node.table else node.name
        if name not in visible:
            place.refuse(f"there is no column {name}. There are {', '.join(visible)}")
        field, kind = visible[name]
        if kind.name not in NUMBERS:
            place.refuse(f"a model takes numbers, and {name} is of type {kind.name}")
        return field


def _key(call: Any) -> tuple[str, ...]:
    return tuple(part.sql() for part in call.expressions)
