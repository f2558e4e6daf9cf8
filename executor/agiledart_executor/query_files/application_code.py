"""Python code of an application under construction: row classes, steps with unique names, and the builder's parameters."""

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any

from agiledart_dataflow.plan.connectors import Connector
from agiledart_executor.query_files import python_code as py
from agiledart_executor.query_files.column_types import ColumnType, TypedCode
from agiledart_kernel.limits import MAX_APPLICATION_NAME

Columns = Mapping[str, ColumnType]

RESERVED = frozenset(
    (
        *("Any", "NamedTuple", "Sink", "Source", "Topology", "build", "col", "count", "datetime", "hopping", "lit"),
        *("on_error", "plugin", "rows_of", "session", "timedelta", "topology", "tumbling", "when"),
        *("bool", "bytes", "float", "int", "str"),
    )
)
"""Names that the code itself uses."""

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


def is_identifier(text: str) -> bool:
    """Return whether a text can name a column or a stream: it becomes a field or a variable."""
    fits = IDENTIFIER.match(text) and len(text) <= MAX_APPLICATION_NAME
    return bool(fits) and not iskeyword(text) and text not in RESERVED


@dataclass(frozen=True)
class Relation:
    """Stream of rows with columns.

    Attributes:
        variable: of the generated code.
        columns: name → type, in order.
        times: columns that hold the event time.
    """

    variable: str
    columns: Columns
    times: frozenset[str] = frozenset()


@dataclass
class ApplicationCode:
    """Code of one topology.

    Args:
        name: of the application.

    Attributes:
        steps: names of all steps so far, in order.
    """

    name: str
    _classes: list[ast.stmt] = field(default_factory=list)
    _body: list[ast.stmt] = field(default_factory=list)
    _parameters: list[tuple[ast.arg, ast.expr]] = field(default_factory=list)
    _imports: list[ast.stmt] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    options: dict[str, str] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    calls_functions: bool = False

    def step(self, wanted: str) -> str:
        """Return a name of a step that no other one has."""
        name = self._unique(wanted)
        self.steps.append(name)
        return name

    def _unique(self, wanted: str) -> str:
        number, name = 1, wanted
        while name in self._names:
            number += 1
            name = f"{wanted}-{number}"
        self._names.add(name)
        return name

    def row_class(self, wanted: str, columns: Columns) -> str:
        """Add a class of rows and return its name."""
        base = "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", wanted)) or "Row"
        name = self._unique(f"{base}Row").replace("-", "_")
        fields: list[ast.stmt] = [
            ast.AnnAssign(ast.Name(column, ast.Store()), kind.annotation(), simple=1)
            for column, kind in columns.items()
        ]
        self._classes.append(ast.ClassDef(name, [py.name("NamedTuple")], [], fields, []))
        return name

    def parameter(self, name: str, kind: str, row_class: str, connector: Connector) -> str:
        """Add a parameter of the builder, a source or a sink, and return its variable."""
        default = py.call(
            py.name("plugin"),
            py.value(connector.kind),
            py.value(connector.path),
            **({"at": py.value(connector.at)} if connector.at else {}),
        )
        assert isinstance(default, ast.Call)
        if connector.options:
            default.keywords.append(ast.keyword(None, py.value(dict(connector.options))))
        annotation: ast.expr = (
            ast.Subscript(py.name(kind), py.name(row_class), ast.Load()) if row_class else py.name(kind)
        )
        self._parameters.append((ast.arg(name, annotation), default))
        return name

    def function(self, module: str, function: str) -> str:
        """Import a function of a user's module and return its variable."""
        alias = f"user_{module.replace('.', '_')}_{function}"
        statement = ast.ImportFrom(module, [ast.alias(function, alias)], 0)
        if alias not in self._names:
            self._names.add(alias)
            self._imports.append(statement)
        return alias

    def add(self, wanted: str, code: ast.expr) -> str:
        """Add a stream and return its variable."""
        number, name = 1, f"stream_{re.sub(r'[^A-Za-z0-9]', '_', wanted)}"
        variable = name
        while variable in self._names:
            number += 1
            variable = f"{name}_{number}"
        self._names.add(variable)
        self._body.append(py.assign(variable, code))
        return variable

    def source(
        self, name: str, connector: Connector, columns: Columns, options: Mapping[str, ast.expr], time: str
    ) -> Relation:
        """Add a source."""
        row_class = self.row_class(name, columns)
        variable = self.parameter(name, "Source", row_class, connector)
        options = {**options, **({"event_time": py.value(time)} if time else {})}
        code = py.method(
            py.name("topology"),
            "source",
            py.value(self.step(name)),
            py.name(variable),
            rows=py.name(row_class),
            **options,
        )
        return Relation(self.add(name, code), columns, frozenset({time} if time else ()))

    def model(self, name: str, connector: Connector) -> str:
        """Add a model, a record of bytes that is there before all rows, and return the variable of its stream."""
        variable = self.parameter(name, "Source", "bytes", connector)
        code = py.method(
            py.name("topology"),
            "reference",
            py.value(self._unique(name)),
            py.name(variable),
            rows=py.name("bytes"),
        )
        return self.add(name, code)

    def score(
        self, relation: Relation, model: str, inputs: list[str], output: str, wanted: str, on_error: str = "fail"
    ) -> Relation:
        """Add the score of a model and its version to the rows.

        Args:
            model: variable of the model's stream.
            inputs: fields, in the order of the model.
        """
        options = {"inputs": py.value(inputs), "output": py.value(output), "on_error": py.value(on_error)}
        step = py.value(self.step(wanted))
        code = py.method(py.name(relation.variable), "score", step, py.name(model), **options)
        columns = {
            **relation.columns,
            output: ColumnType("float", nullable=True),
            f"{output}_version": ColumnType("text", nullable=False),
        }
        return Relation(self.add(wanted, code), columns, relation.times)

    def place(self, step: str, rules: Mapping[str, Any]) -> None:
        """State which nodes may run a step."""
        given = {rule: py.value(value) for rule, value in rules.items()}
        self._body.append(ast.Expr(py.method(py.name("topology"), "place", py.value(step), **given)))

    def expect(self, step: str, slo: str) -> None:
        """State the time that a row may take in a step, or until a sink has written it."""
        given = {"slo": py.value(slo)}
        self._body.append(ast.Expr(py.method(py.name("topology"), "expect", py.value(step), **given)))

    def standby(self, steps: Iterable[str], hosts: int) -> None:
        """State how many hosts hold the state of steps ready."""
        for step in steps:
            self._body.append(ast.Expr(py.method(py.name("topology"), "standby", py.value(step), py.value(hosts))))

    def where(self, relation: Relation, condition: ast.expr, wanted: str) -> Relation:
        """Keep the rows for which a condition is true."""
        code = py.method(py.name(relation.variable), "where", condition, name=py.value(self.step(wanted)))
        return Relation(self.add(wanted, code), relation.columns, relation.times)

    def select(self, relation: Relation, columns: Mapping[str, TypedCode], wanted: str) -> Relation:
        """Compute new columns in place of the old ones."""
        given = {name: column.code for name, column in columns.items() if name != "name"}
        code = py.method(py.name(relation.variable), "select", **given)
        assert isinstance(code, ast.Call)
        step = self.step(wanted)
        row_types = {name: _known(column) for name, column in columns.items()}
        if "name" not in columns:
            code.keywords.append(ast.keyword("name", py.value(step)))
        else:
            # `name=` names the step, unless it is an expression: the columns stay in their order
            code.keywords = [ast.keyword(name, column.code) for name, column in columns.items()]
        times = frozenset(
            name for name, column in columns.items() if any(py.is_column(column.code, time) for time in relation.times)
        )
        return Relation(self.add(wanted, code), row_types, times)

    def renamed(self, relation: Relation, row_class: str, wanted: str) -> Relation:
        """Return the rows as another class with equal fields."""
        row = ast.arg("row")
        parameters = ast.arguments([], [row], None, [], [], None, [])
        body = py.call(py.name(row_class), ast.Starred(py.name("row"), ast.Load()))
        code = py.method(
            py.name(relation.variable),
            "map",
            ast.Lambda(parameters, body),
            py.value(self.step(wanted)),
            returns=py.name(row_class),
        )
        return Relation(self.add(wanted, code), relation.columns, relation.times)

    def sink(self, relation: Relation, name: str, connector: Connector) -> None:
        """Add a sink."""
        variable = self.parameter(name, "Sink", "", connector)
        code = py.method(py.name(relation.variable), "sink", py.value(self.step(name)), py.name(variable))
        self._body.append(ast.Expr(code))

    def source_text(self, file: str) -> str:
        """Return the module as Python source."""
        builder = ast.FunctionDef(
            "build",
            ast.arguments(
                [], [arg for arg, _ in self._parameters], None, [], [], None, [given for _, given in self._parameters]
            ),
            [
                py.assign(
                    "topology",
                    py.call(
                        py.name("Topology"),
                        py.value(self.name),
                        **{option: py.value(given) for option, given in self.options.items()},
                    ),
                ),
                *self._body,
                ast.Return(py.name("topology")),
            ],
            [],
            py.name("Topology"),
        )
        imports = ast.parse(_IMPORTS).body
        docstring = ast.Expr(py.value(f"Made from {file} by AgileDART; change that file instead."))
        helpers = ast.parse(_ROWS_OF).body if self.calls_functions else []
        module = ast.Module([docstring, *imports, *self._imports, *helpers, *self._classes, builder], [])
        return ast.unparse(ast.fix_missing_locations(module)) + "\n"


_IMPORTS = """
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from agiledart import Sink, Source, Topology, col, count, hopping, lit, plugin, session, tumbling, when
"""

_ROWS_OF = '''
def rows_of(made: Any, row_class: Any) -> list[Any]:
    """Return what a function returned as rows: None, a dict, a tuple, or a list of such."""
    rows = [] if made is None else made if isinstance(made, list) else [made]
    return [row_class(**row) if isinstance(row, dict) else row_class(*row) for row in rows]
'''


def _known(column: TypedCode) -> ColumnType:
    assert column.type is not None  # a column of NULL alone is refused before
    return column.type
