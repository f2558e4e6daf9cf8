"""Window joins: `FROM TUMBLE(a, at, …) AS l JOIN TUMBLE(b, at, …) AS r ON l.id = r.id`."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
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
        joined_aliases: of the streams of joined tables.
    """

    relation: Relation
    alias: str
    window: WindowClause | None
    place: TextPlace
    names: Visible = field(default_factory=dict)
    joined_aliases: frozenset[str] = frozenset()

    @property
    def aliases(self) -> frozenset[str]:
        """Return the names of the streams of which it has columns."""
        return self.joined_aliases or frozenset({self.alias} - {""})

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
        """Return the joined table; a third stream joins the pairs of the first two, and so on."""
        for number, node in enumerate(joins):
            place = self._text.place_of_node(node, self._place)
            right = table(node.this)
            how = self._how(node, place, is_first=number == 0)
            if left.window is None or right.window is None:
                place.refuse("both sides of a JOIN need the same window: TUMBLE(stream, at, INTERVAL '1' MINUTE) AS l")
            if left.window != right.window or left.window.kind == "SESSION":
                place.refuse("both sides of a JOIN need the same window, TUMBLE or HOP")
            if not left.aliases or not right.aliases or left.aliases & right.aliases:
                place.refuse("both sides of a JOIN need names of their own: … AS l JOIN … AS r")
            keys = self._keys(node, left, right, place)
            left = self._joined(left, right, keys, how, wanted, is_first=number == 0)
        return left

    @staticmethod
    def _how(node: Any, place: TextPlace, *, is_first: bool) -> str:
        """Return the kind of a join: inner, left or outer; refuse other ones."""
        side = str(node.args.get("side") or "").lower()
        how = side or ("inner" if str(node.args.get("kind") or "").upper() in ("", "INNER", "OUTER") else "")
        how = {"full": "outer"}.get(how, how)
        if how not in ("inner", "left", "outer") or node.args.get("method") or node.args.get("using"):
            place.refuse("write JOIN, LEFT JOIN or FULL JOIN, with ON")
        if how == "outer" and not is_first:
            place.refuse("FULL JOIN is for two streams; write it first")
        return how

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
            if _aliases(first) == right.aliases:
                first, second = second, first
            if not _aliases(first) or not _aliases(first) <= left.aliases or _aliases(second) != right.aliases:
                here.refuse(f"write {min(left.aliases)}.column = {right.alias}.column")
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
        self,
        left: TableClause,
        right: TableClause,
        keys: list[tuple[TypedCode, TypedCode]],
        how: str,
        wanted: str,
        *,
        is_first: bool,
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
        step = py.value(self._code.step(f"{wanted}-join"))
        if is_first:
            window = left.window.code(left.place)
            joined = py.method(sides[0], "window_join", step, sides[1], window, how=py.value(how))
        else:
            # pairs have the time of their window's end, so rows of the same window are up to its length earlier
            earliest, latest = py.value(-left.window.length), py.value(-timedelta(milliseconds=1))
            joined = py.method(
                sides[0], "interval_join", step, sides[1], earliest=earliest, latest=latest, how=py.value(how)
            )
        columns, names = _columns_of_both(left, right, how)
        row_class = self._code.row_class(f"{wanted}-joined", columns)
        flat = py.method(
            joined,
            "map",
            _flattened(row_class, len(left.relation.columns), len(right.relation.columns)),
            py.value(self._code.step(f"{wanted}-pairs")),
            returns=py.name(row_class),
        )
        relation = Relation(self._code.add(wanted, flat), columns)
        return TableClause(relation, "", left.window, left.place, names, left.aliases | right.aliases)


def _columns_of_both(
    left: TableClause, right: TableClause, how: str
) -> tuple[dict[str, ColumnType], dict[str, tuple[str, ColumnType]]]:
    """Return the columns of joined rows, and the names by which expressions know them."""
    columns: dict[str, ColumnType] = {}
    names: dict[str, tuple[str, ColumnType]] = {}
    for side, other, is_outer in ((left, right, how == "outer"), (right, left, how != "inner")):
        fields: dict[str, str] = {}
        for name, kind in side.relation.columns.items():
            field = name if name not in other.relation.columns else f"{side.alias}_{name}".lstrip("_")
            while field in columns:
                field += "_"
            columns[field] = ColumnType(kind.name, kind.nullable or is_outer)
            fields[name] = field
        unclear = other.visible()
        for name, (old, _) in side.visible().items():
            if "." in name or name not in unclear:
                names[name] = (fields[old], columns[fields[old]])
    return columns, names


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
