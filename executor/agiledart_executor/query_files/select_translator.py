"""Translator of SELECT: from, where, window, group, having and the list of columns, in the order in which they work."""

from collections.abc import Mapping
from typing import Any, Final

from agiledart_executor.query_files import python_code as py
from agiledart_executor.query_files.aggregation import AGGREGATES, WindowAggregates
from agiledart_executor.query_files.application_code import ApplicationCode, Relation, is_identifier
from agiledart_executor.query_files.column_types import ColumnType, TypedCode
from agiledart_executor.query_files.expression_translator import ExpressionTranslator
from agiledart_executor.query_files.join_clause import JoinedTables, TableClause
from agiledart_executor.query_files.relation_scope import RelationScope
from agiledart_executor.query_files.score_calls import ScoreCalls, is_score_call
from agiledart_executor.query_files.sql_text import SqlText
from agiledart_executor.query_files.text_place import TextPlace
from agiledart_executor.query_files.window_clause import WINDOW_COLUMNS, WINDOWS, WindowClause

MAX_NESTING: Final = 16
"""Subqueries within each other."""

_READ: Final = frozenset({"expressions", "from_", "where", "group", "having", "joins", "with_", "distinct"})

_CLAUSES: Final = {
    "windows": "WINDOW",
    "locks": "FOR UPDATE",
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
    "db": "a schema",
}
"""Clauses by the names that the parser gives them."""

_WINDOW_TYPE: Final = ColumnType("int", nullable=False)


class SelectTranslator:
    """Translator of queries of one text.

    Args:
        text: the SQL.
        code: takes the steps.
        scope: the streams that may be named.
        place: of the statement.
    """

    def __init__(self, text: SqlText, code: ApplicationCode, scope: RelationScope, place: TextPlace) -> None:
        self._text, self._code, self._scope, self._place = text, code, scope, place
        self._depth = 0

    def place(self, node: Any) -> TextPlace:
        """Return the place of a node."""
        return self._text.place_of_node(node, self._place)

    def translate(self, node: Any, wanted: str) -> Relation:
        """Translate SELECT, or several with UNION ALL; steps are named after `wanted`."""
        if self._depth >= MAX_NESTING:
            self.place(node).refuse(f"more than {MAX_NESTING} queries within each other")
        self._depth += 1
        try:
            if node.args.get("with_") is not None and node.key in ("select", "union"):
                return self._with(node, wanted)
            return self._query(node, wanted)
        finally:
            self._depth -= 1

    def _query(self, node: Any, wanted: str) -> Relation:
        """Translate a query whose WITH is in the scope."""
        if node.key == "union":
            return self._union(node, wanted)
        if node.key == "subquery" and node.args.get("alias") is None:
            return self.translate(node.this, wanted)
        if node.key != "select":
            self.place(node).refuse(f"a SELECT is needed here, not {node.sql()[:60]}")
        return self._select(node, wanted)

    def _with(self, node: Any, wanted: str) -> Relation:
        """Translate a query with WITH: each of its queries is a view of this statement, and must be read."""
        clause = node.args["with_"]
        self.refuse_other_parts(clause, frozenset({"expressions"}))
        scope = RelationScope(self._scope)
        inner = SelectTranslator(self._text, self._code, scope, self._place)
        inner._depth = self._depth
        places: dict[str, TextPlace] = {}
        for query in clause.expressions:
            alias = query.args["alias"]
            places[query.alias] = here = self._text.place_of_node(alias, self._place)
            self.refuse_other_parts(query, frozenset({"this", "alias"}))
            if alias.args.get("columns"):
                here.refuse(f"write {query.alias} AS (SELECT … AS name): columns get their names in the SELECT")
            scope.check_new(query.alias, here)
            scope.define(query.alias, inner.translate(query.this, query.alias), here)
        relation = inner._query(node, wanted)
        for name in scope.unused:
            places[name].refuse(f"nothing reads {name}")
        return relation

    # ---- union

    def _union(self, node: Any, wanted: str) -> Relation:
        if node.args.get("distinct"):
            self.place(node).refuse("UNION would have to remember all rows: write UNION ALL")
        self.refuse_other_parts(node, frozenset({"this", "expression", "distinct", "with_"}))
        sides = [self.translate(part, wanted) for part in _union_parts(node)]
        names = list(sides[0].columns)
        for side, part in zip(sides, _union_parts(node), strict=True):
            if len(side.columns) != len(names):
                self.place(part).refuse(f"UNION ALL needs {len(names)} columns here, and this has {len(side.columns)}")
        columns = {}
        for number, name in enumerate(names):
            kinds = [list(side.columns.values())[number] for side in sides]
            if len({kind.name for kind in kinds}) > 1:
                shown = " and ".join(str(kind) for kind in kinds)
                self.place(node).refuse(f"column {name} of UNION ALL is {shown}: CAST one of them")
            columns[name] = ColumnType(kinds[0].name, any(kind.nullable for kind in kinds))
        row_class = self._code.row_class(wanted, columns)
        renamed = [self._code.renamed(side, row_class, f"{wanted}-rows") for side in sides]
        others = [py.name(side.variable) for side in renamed[1:]]
        union = py.method(
            py.name(renamed[0].variable), "union", *others, name=py.value(self._code.step(f"{wanted}-union"))
        )
        times = frozenset.intersection(*(side.times for side in sides))
        return Relation(self._code.add(wanted, union), columns, times)

    # ---- select

    def _select(self, node: Any, wanted: str) -> Relation:
        self.refuse_other_parts(node, _READ)
        if node.args.get("from_") is None:
            self.place(node).refuse("FROM is missing")
        for part in node.expressions:
            for window in (inner for inner in part.walk() if inner.key == "window"):
                self.place(window).refuse(
                    "OVER is not supported: a window stands in FROM, as TUMBLE(stream, at, INTERVAL '1' MINUTE)"
                )
        table = self._table(node.args["from_"].this, wanted)
        joins = node.args.get("joins") or []
        if joins:
            joined = JoinedTables(self._text, self._code, self._place)
            table = joined.join(table, joins, lambda part: self._table(part, wanted), wanted)
        relation, columns = table.relation, table.visible()
        models = ScoreCalls(self._text, self._code, self._scope, self._place)

        def refuse_misplaced(part: Any) -> TypedCode | None:
            models.refuse(part)
            return self._refuse_aggregate(part)

        rows = ExpressionTranslator(self._text, columns, self._place, refuse_misplaced)
        if node.args.get("where") is not None:
            relation = self._code.where(relation, rows.condition(node.args["where"].this), f"{wanted}-where")
        if node.args.get("distinct") is not None:
            return self._distinct(node, relation, table, rows, wanted)
        is_grouped = node.args.get("group") is not None or any(
            part.key in AGGREGATES for item in node.expressions for part in item.walk()
        )
        if is_grouped or (table.window is not None and not joins):
            if table.window is None or joins:
                self.place(node).refuse("aggregates need a window: FROM TUMBLE(stream, at, INTERVAL '1' MINUTE)")
            return self._grouped(node, relation, table, rows, wanted)
        if node.args.get("having") is not None:
            self.place(node.args["having"]).refuse("HAVING needs GROUP BY and a window; write WHERE")
        scored = models.apply(node.expressions, relation, columns, wanted)
        listed = ExpressionTranslator(
            self._text, columns, self._place, lambda part: models.translate(part) or self._refuse_aggregate(part)
        )
        return self._code.select(scored, self._columns(node, listed, columns), f"{wanted}-select")

    def _distinct(
        self, node: Any, relation: Relation, table: TableClause, rows: ExpressionTranslator, wanted: str
    ) -> Relation:
        """Translate SELECT DISTINCT of a window: the groups of all its columns."""
        place = self.place(node.args["distinct"])
        if node.args["distinct"].args.get("on"):
            place.refuse("DISTINCT ON is not supported")
        has_aggregate = any(part.key in AGGREGATES for item in node.expressions for part in item.walk())
        if has_aggregate or any(node.args.get(part) for part in ("group", "having", "joins")):
            place.refuse(
                "DISTINCT goes with columns of one window only: DISTINCT of the result in a query around this one"
            )
        named = {part.name for item in node.expressions for part in item.walk() if part.key == "column"}
        if table.window is None or not named & set(WINDOW_COLUMNS):
            place.refuse(
                "DISTINCT would have to remember all rows:"
                " SELECT DISTINCT room, window_end FROM TUMBLE(stream, at, INTERVAL '1' MINUTE)"
            )
        return self._grouped(node, relation, table, rows, wanted)

    def _grouped(
        self, node: Any, relation: Relation, table: TableClause, rows: ExpressionTranslator, wanted: str
    ) -> Relation:
        assert table.window is not None
        keys = self._keys(node, rows)
        aggregates = WindowAggregates(rows)
        by_text = {text: name for name, (text, _) in keys.items()}
        types = {name: key for name, (_, key) in keys.items()}

        def special(part: Any) -> TypedCode | None:
            if is_score_call(part):
                rows.translate(part)  # refuses it
            if (aggregate := aggregates.translate(part)) is not None:
                return aggregate
            if part.key == "column" and part.name in WINDOW_COLUMNS:
                field = {"window_start": "start_ms", "window_end": "end_ms"}[part.name]
                return TypedCode(py.column(field), _WINDOW_TYPE)
            name = by_text.get(part.sql())
            if name is not None:
                return TypedCode(py.column(name), types[name].type)
            if part.key == "column":
                rows.translate(part)  # an unknown column has an error of its own
                self.place(part).refuse(f"{part.sql()} stands neither in GROUP BY nor in an aggregate")
            return None

        results = ExpressionTranslator(self._text, table.visible(), self._place, special)
        if any(item.key == "star" for item in node.expressions):
            self.place(node).refuse("* does not go with GROUP BY: name the columns")
        chosen = self._columns(node, results, {})
        having = node.args.get("having")
        condition = None if having is None else results.condition(having.this)
        prepared = {name: key for name, (_, key) in keys.items()} or {
            "key_0": TypedCode(py.literal(0), ColumnType("int", nullable=False))
        }
        before = self._code.select(relation, {**prepared, **aggregates.arguments}, f"{wanted}-prepare")
        keyed = py.method(py.name(before.variable), "key_by", *(py.column(name) for name in prepared))
        window = py.method(keyed, "window", table.window.code(table.place))
        named = aggregates.results or {"result_0": py.call(py.name("count"))}
        panes = py.method(window, "aggregate", py.value(self._code.step(f"{wanted}-window")), **named)
        grouped = Relation(self._code.add(wanted, panes), {}, frozenset())
        if condition is not None:
            grouped = self._code.where(grouped, condition, f"{wanted}-having")
        selected = self._code.select(grouped, chosen, f"{wanted}-select")
        times = frozenset(name for name, column in chosen.items() if py.is_column(column.code, "end_ms"))
        return Relation(selected.variable, selected.columns, times)

    def _keys(self, node: Any, rows: ExpressionTranslator) -> dict[str, tuple[str, TypedCode]]:
        """Return the keys of GROUP BY: name of the field → (text, code); window_start and window_end are understood."""
        group = node.args.get("group")
        if node.args.get("distinct") is not None:
            return self._keys_of_all_columns(node, rows)
        if group is None:
            return {}
        self.refuse_other_parts(group, frozenset({"expressions"}))
        aliases = {item.alias: item.this for item in node.expressions if item.key == "alias"}
        keys: dict[str, tuple[str, TypedCode]] = {}
        for part in group.expressions:
            if part.key == "column" and part.name in WINDOW_COLUMNS:
                continue
            if part.key == "literal":
                self.place(group).refuse("GROUP BY takes columns and expressions, not their numbers")
            is_alias = part.key == "column" and not part.table and part.name in aliases
            expression = aliases[part.name] if is_alias else part
            key = rows.translate(expression)
            if key.type is None:
                self.place(part).refuse("GROUP BY NULL has one group: leave it out")
            keys[f"key_{len(keys)}"] = (expression.sql(), key)
        return keys

    def _keys_of_all_columns(self, node: Any, rows: ExpressionTranslator) -> dict[str, tuple[str, TypedCode]]:
        """Return the columns of SELECT DISTINCT as keys of a window."""
        keys: dict[str, tuple[str, TypedCode]] = {}
        for item in node.expressions:
            expression = item.this if item.key == "alias" else item
            if item.key == "star" or (expression.key == "column" and expression.name in WINDOW_COLUMNS):
                continue
            key = rows.translate(expression)
            if key.type is not None:
                keys[f"key_{len(keys)}"] = (expression.sql(), key)
        return keys

    def _columns(
        self, node: Any, rows: ExpressionTranslator, columns: Mapping[str, tuple[str, ColumnType]]
    ) -> dict[str, TypedCode]:
        """Return the list of columns of a SELECT."""
        chosen: dict[str, TypedCode] = {}
        for item in node.expressions:
            if item.key == "star":
                if any(item.args.get(part) for part in ("except_", "replace", "rename")):
                    self.place(node).refuse("* takes nothing behind it")
                chosen |= {field: TypedCode(py.column(field), kind) for field, kind in columns.values()}
                continue
            expression = item.this if item.key == "alias" else item
            if expression.key == "column" and expression.this.key == "star":
                self.place(item).refuse(f"{item.sql()} is not supported: name the columns, or write *")
            name = item.alias if item.key == "alias" else item.name if item.key == "column" else ""
            if not name:
                self.place(item).refuse(f"a result needs a name: {item.sql()[:60]} AS name")
            if not is_identifier(name):
                self.place(item).refuse(
                    f"{name!r} cannot name a column: letters, digits and _, beginning with a letter, no reserved word"
                )
            if name in chosen:
                self.place(item).refuse(f"there are two columns {name}: name one of them with AS")
            typed = rows.translate(expression)
            if typed.type is None:
                self.place(item).refuse(
                    f"{name} is always NULL, whose type is unknown: CAST is of no use, leave it out"
                )
            chosen[name] = typed
        return chosen

    def _table(self, node: Any, wanted: str) -> TableClause:
        """Return one entry of FROM: a stream, a window of one, or a query."""
        if node.key == "subquery":
            return TableClause(self.translate(node.this, f"{wanted}-query"), node.alias, None, self.place(node))
        if node.key != "table":
            self.place(node).refuse(f"FROM takes a stream, a window or a query, not {node.sql()[:60]}")
        self.refuse_other_parts(node, frozenset({"this", "alias"}))
        if node.this.key == "identifier":
            relation = self._scope.named(node.name, self.place(node))
            return TableClause(relation, node.alias or node.name, None, self.place(node))
        function = node.this.name.upper()
        if function not in WINDOWS:
            self.place(node).refuse(f"there is no window {function}; there are {', '.join(WINDOWS)}")
        parts = node.this.expressions
        if len(parts) != 2 + WINDOWS[function] or parts[0].key != "column" or parts[1].key != "column":
            lengths = "INTERVAL '1' MINUTE, INTERVAL '5' MINUTE" if function == "HOP" else "INTERVAL '1' MINUTE"
            self.place(node).refuse(f"write {function}(stream, time column, {lengths})")
        relation = self._scope.named(parts[0].name, self.place(parts[0]))
        if parts[1].name not in relation.times:
            known = ", ".join(sorted(relation.times)) or "none: give its source event_time='…'"
            self.place(parts[1]).refuse(f"{parts[1].name} is not the event time of {parts[0].name}; that is {known}")
        spans = ExpressionTranslator(self._text, {}, self._place)
        window = WindowClause(function, [spans.span(part) for part in parts[2:]])
        return TableClause(relation, node.alias or parts[0].name, window, self.place(node))

    def _refuse_aggregate(self, node: Any) -> TypedCode | None:
        """Refuse an aggregate where single rows are treated."""
        if node.key in AGGREGATES:
            self.place(node).refuse(
                f"{node.sql()[:60]} stands behind WHERE or GROUP BY; an aggregate belongs in SELECT or HAVING"
            )
        return None

    def refuse_other_parts(self, node: Any, known: frozenset[str]) -> None:
        """Refuse the clauses that are not supported, by name."""
        for name, part in node.args.items():
            if part and name not in known and name != "kind" and not name.startswith("hint"):
                shown = _CLAUSES.get(name, name.strip("_").replace("_", " ").upper())
                first = part[0] if isinstance(part, list) else part
                place = self.place(node if isinstance(first, str | bool) else first)
                place.refuse(f"{shown} is not supported")


def _union_parts(node: Any) -> list[Any]:
    """Return the queries of a chain of UNION ALL, in order."""
    parts = []
    while node.key == "union" and not node.args.get("distinct"):
        parts.append(node.expression)
        node = node.this
    return [node, *reversed(parts)]
