"""Window joins: `FROM TUMBLE(a, at, …) AS l JOIN TUMBLE(b, at, …) AS r ON l.id = r.id`."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agiledart_executor.query_files import python_code as py
from agiledart_executor.query_files.application_code import ApplicationCode, Relation
from agiledart_executor.query_files.column_types import NUMBERS, ColumnType, TypedCode
from agiledart_executor.query_files.expression_translator import ExpressionTranslator
from agiledart_executor.query_files.sql_text import SqlText
from agiledart_executor.query_files.text_place import TextPlace
from agiledart_executor.query_files.window_clause import WindowClause

Visible = Mapping[str, tuple[str, ColumnType]]


@dataclass(frozen=True)
class TableClause:
    """Entry of FROM.

    Attributes:
        alias: by which its columns may be named; empty when there is none.
        window: of the entry; None without.
        names: visible name → field, for joined tables; otherwise each column is visible under its own name.
    """

    relation: Relation
    alias: str
    window: WindowClause | None
    place: TextPlace
    names: Visible = field(default_factory=dict)

    def visible(self) -> Visible:
        """Return the columns by the names that expressions may use."""
        if self.names:
            return self.names
        own = {name: (name, kind) for name, kind in self.relation.columns.items()}
        return {**own, **{f"{self.alias}.{name}": column for name, column in own.items() if self.alias}}


class JoinedTables:
    """Translator of the joins of one SELECT."""

    def __init__(self, text: SqlText, code: ApplicationCode, place: TextPlace) -> None:
        self._text, self._code, self._place = text, code, place

    def join(
        self, left: TableClause, joins: list[Any], table: Callable[[Any], TableClause], wanted: str
    ) -> TableClause:
        """Return the joined table; there may be one join."""
        node = joins[0]
        if len(joins) > 1:
            self._text.place_of_node(joins[1], self._place).refuse(
                "a SELECT joins two streams; join the result in another one"
            )
        right = table(node.this)
        side = str(node.args.get("side") or "").lower()
        how = side or ("inner" if str(node.args.get("kind") or "").upper() in ("", "INNER", "OUTER") else "")
        how = {"full": "outer"}.get(how, how)
        place = self._text.place_of_node(node, self._place)
        if how not in ("inner", "left", "outer") or node.args.get("method") or node.args.get("using"):
            place.refuse("write JOIN, LEFT JOIN or FULL JOIN, with ON")
        if left.window is None or right.window is None:
            place.refuse("both sides of a JOIN need the same window: TUMBLE(stream, at, INTERVAL '1' MINUTE) AS l")
        if left.window != right.window or left.window.kind == "SESSION":
            place.refuse("both sides of a JOIN need the same window, TUMBLE or HOP")
        if not left.alias or not right.alias or left.alias == right.alias:
            place.refuse("both sides of a JOIN need names of their own: … AS l JOIN … AS r")
        keys = self._keys(node, left, right, place)
        return self._joined(left, right, keys, how, wanted)

    def _keys(
        self, node: Any, left: TableClause, right: TableClause, place: TextPlace
    ) -> list[tuple[TypedCode, TypedCode]]:
        """Return the pairs of expressions that ON compares."""
        condition = node.args.get("on")
        if condition is None:
            place.refuse("ON is missing: ON l.id = r.id")
        parts = [condition]
        while any(part.key in ("and", "paren") for part in parts):
            parts = [
                inner
                for part in parts
                for inner in (
                    (part.this, part.expression)
                    if part.key == "and"
                    else (part.this,)
                    if part.key == "paren"
                    else (part,)
                )
            ]
        pairs = []
        for part in parts:
            here = self._text.place_of_node(part, place)
            if part.key != "eq":
                here.refuse(f"ON compares columns with =, joined by AND; {part.sql()[:60]} belongs in WHERE")
            first, second = part.this, part.expression
            if _aliases(first) == {right.alias}:
                first, second = second, first
            if _aliases(first) != {left.alias} or _aliases(second) != {right.alias}:
                here.refuse(f"write {left.alias}.column = {right.alias}.column")
            pair = (
                ExpressionTranslator(self._text, left.visible(), here).translate(first),
                ExpressionTranslator(self._text, right.visible(), here).translate(second),
            )
            kinds = [side.type.name for side in pair if side.type is not None]
            if len(kinds) < 2 or (kinds[0] != kinds[1] and not set(kinds) <= set(NUMBERS)):
                here.refuse(f"{part.sql()[:60]} compares {' and '.join(kind.upper() for kind in kinds)}")
            pairs.append(pair)
        return pairs

    def _joined(
        self, left: TableClause, right: TableClause, keys: list[tuple[TypedCode, TypedCode]], how: str, wanted: str
    ) -> TableClause:
        if any(pair[0].nullable or pair[1].nullable for pair in keys) and how != "inner":
            left.place.refuse("the columns of ON of a LEFT or FULL JOIN must be NOT NULL")
        sides = []
        for number, side in enumerate((left, right)):
            relation = side.relation
            for pair in keys:
                if pair[number].nullable:  # NULL equals nothing
                    present = py.method(pair[number].code, "is_not_null")
                    relation = self._code.where(relation, present, f"{wanted}-keys")
            key = py.method(py.name(relation.variable), "key_by", *(pair[number].code for pair in keys))
            sides.append(key)
        assert left.window is not None
        joined = py.method(
            sides[0],
            "window_join",
            py.value(self._code.step(f"{wanted}-join")),
            sides[1],
            left.window.code(left.place),
            how=py.value(how),
        )
        columns: dict[str, ColumnType] = {}
        names: dict[str, tuple[str, ColumnType]] = {}
        for side, is_outer in ((left, how == "outer"), (right, how != "inner")):
            for name, kind in side.relation.columns.items():
                other = right if side is left else left
                field = name if name not in other.relation.columns else f"{side.alias}_{name}"
                while field in columns:
                    field += "_"
                columns[field] = ColumnType(kind.name, kind.nullable or is_outer)
                names[f"{side.alias}.{name}"] = (field, columns[field])
                if name not in other.relation.columns:
                    names[name] = (field, columns[field])
        row_class = self._code.row_class(f"{wanted}-joined", columns)
        flat = py.method(
            joined,
            "map",
            _flattened(row_class, len(left.relation.columns), len(right.relation.columns)),
            py.value(self._code.step(f"{wanted}-pairs")),
            returns=py.name(row_class),
        )
        relation = Relation(self._code.add(wanted, flat), columns)
        return TableClause(relation, "", None, left.place, names)


def _flattened(row_class: str, left: int, right: int) -> ast.expr:
    """Return `lambda pair: Row(*(pair.left or (None,) * n), *(pair.right or (None,) * m))`."""

    def fields(side: str, count: int) -> ast.expr:
        nothing = ast.Tuple([ast.Constant(None)] * count, ast.Load())
        return ast.Starred(ast.BoolOp(ast.Or(), [py.attribute(py.name("pair"), side), nothing]), ast.Load())

    parameters = ast.arguments([], [ast.arg("pair")], None, [], [], None, [])
    return ast.Lambda(parameters, py.call(py.name(row_class), fields("left", left), fields("right", right)))


def _aliases(node: Any) -> set[str]:
    """Return the tables that an expression names."""
    return {part.table for part in node.walk() if part.key == "column"}
