"""Applications in SQL: `CREATE STREAM`, `CREATE VIEW … AS SELECT`, `INSERT INTO sink SELECT`, and a last SELECT for stdout."""

from typing import Any

from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_executor.query_files import python_code as py
from agiledart_executor.query_files.application_code import ApplicationCode, Relation
from agiledart_executor.query_files.relation_scope import RelationScope
from agiledart_executor.query_files.select_translator import SelectTranslator
from agiledart_executor.query_files.sql_text import SqlText
from agiledart_executor.query_files.stream_declaration import DeclarationParser, StreamDeclaration
from agiledart_executor.query_files.text_place import TextPlace

RESULT = "result"
"""Sink of a SELECT that stands alone."""


class SqlApplication:
    """Translator of one file of SQL.

    Args:
        text: of the file.
        code: takes the application.
    """

    def __init__(self, text: SqlText, code: ApplicationCode) -> None:
        self._text, self._code = text, code
        self._scope = RelationScope()
        self._sinks: dict[str, StreamDeclaration] = {}
        self._inserted: dict[str, list[tuple[Relation, TextPlace]]] = {}
        self._places: dict[str, TextPlace] = {}

    def translate(self) -> None:
        """Translate all statements. Raises `QueryFileError`."""
        for tokens in self._text.statements():
            words = [token.text.upper() for token in tokens[:2]]
            if words == ["CREATE", "STREAM"]:
                self._declare(DeclarationParser(self._text, tokens).parse())
            else:
                self._statement(self._text.parse(tokens), self._text.place_of_token(tokens[0]))
        if not self._inserted:
            self._text.start.refuse("nothing is written: end with INSERT INTO sink SELECT …, or SELECT …")
        for name, inserted in self._inserted.items():
            self._write(name, inserted)
        for name in self._scope.unused:
            self._places[name].refuse(f"nothing reads {name}")
        for name, declaration in self._sinks.items():
            if name not in self._inserted:
                declaration.place.refuse(f"nothing is inserted into {name}")

    def _declare(self, declaration: StreamDeclaration) -> None:
        name, place = declaration.name, declaration.place
        self._scope.check_new(name, place)
        if name in self._sinks:
            place.refuse(f"there is already a stream {name}")
        if declaration.is_sink:
            declaration.connector()
            self._sinks[name] = declaration
            return
        source = self._code.source(
            name, declaration.connector(), declaration.columns, declaration.source_options(), declaration.time
        )
        self._define(name, source, place)

    def _define(self, name: str, relation: Relation, place: TextPlace) -> None:
        if name in self._sinks:
            place.refuse(f"there is already a stream {name}")
        self._scope.define(name, relation, place)
        self._places[name] = place

    def _statement(self, node: Any, place: TextPlace) -> None:
        select = SelectTranslator(self._text, self._code, self._scope, place)
        if node.key == "create" and node.args.get("kind") == "VIEW":
            name = node.this.name
            here = self._text.place_of_node(node.this, place)
            select.refuse_other_parts(node, frozenset({"this", "kind", "expression"}))
            if node.this.key != "table" or node.expression is None:
                here.refuse("write CREATE VIEW name AS SELECT …")
            self._scope.check_new(name, here)
            self._define(name, select.translate(node.expression, name), here)
        elif node.key == "insert":
            here = self._text.place_of_node(node.this, place)
            select.refuse_other_parts(node, frozenset({"this", "expression"}))
            if node.this.key != "table" or node.expression is None:
                here.refuse("write INSERT INTO sink SELECT …; the columns are those of the SELECT")
            name = node.this.name
            if name not in self._sinks:
                known = ", ".join(self._sinks) or f"none: CREATE STREAM {name} WITH (sink='log:{name}')"
                here.refuse(f"there is no sink {name}; there are {known}")
            self._inserted.setdefault(name, []).append((select.translate(node.expression, name), here))
        elif node.key in ("select", "union"):
            if RESULT in self._inserted:
                place.refuse("a second SELECT without INSERT INTO: name its sink")
            self._scope.check_new(RESULT, place)
            self._inserted[RESULT] = [(select.translate(node, RESULT), place)]
        else:
            place.refuse("is not supported: CREATE STREAM, CREATE VIEW, INSERT INTO … SELECT and SELECT are")

    def _write(self, name: str, inserted: list[tuple[Relation, TextPlace]]) -> None:
        """Write what is inserted into a sink; several queries are merged."""
        relation, _ = inserted[0]
        types = {column: kind.name for column, kind in relation.columns.items()}
        for other, place in inserted[1:]:
            if {column: kind.name for column, kind in other.columns.items()} != types:
                place.refuse(f"the SELECT into {name} has other columns than the one before: {', '.join(types)}")
        if len(inserted) > 1:
            row_class = self._code.row_class(f"{name}-all", relation.columns)
            renamed = [self._code.renamed(part, row_class, f"{name}-rows") for part, _ in inserted]
            others = [py.name(part.variable) for part in renamed[1:]]
            union = py.method(
                py.name(renamed[0].variable), "union", *others, name=py.value(self._code.step(f"{name}-union"))
            )
            relation = Relation(self._code.add(name, union), relation.columns)
        declaration = self._sinks.get(name)
        self._code.sink(relation, name, parse_connector("stdout:") if declaration is None else declaration.connector())
