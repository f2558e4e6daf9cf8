"""Applications in YAML: sources, steps and sinks; conditions and values are written as in SQL."""

import ast
from typing import Any, Final

from agiledart_dataflow.plan.connectors import Connector, parse_connector
from agiledart_dataflow.plan.placement_rules import rules_from, slo_ms_of
from agiledart_executor.query_files import python_code as py
from agiledart_executor.query_files.aggregation import AGGREGATES, WindowAggregates
from agiledart_executor.query_files.application_code import ApplicationCode, Columns, Relation, is_identifier
from agiledart_executor.query_files.column_types import ColumnType, TypedCode, TypeName
from agiledart_executor.query_files.expression_translator import ExpressionTranslator
from agiledart_executor.query_files.model_connector import model_connector
from agiledart_executor.query_files.relation_scope import RelationScope
from agiledart_executor.query_files.source_options import SOURCE_OPTIONS, option_code
from agiledart_executor.query_files.span_text import span_of
from agiledart_executor.query_files.sql_text import SqlText
from agiledart_executor.query_files.text_place import TextPlace
from agiledart_executor.query_files.window_clause import WINDOW_COLUMNS, WindowClause
from agiledart_executor.query_files.yaml_document import YamlValue, read_yaml
from agiledart_kernel.errors import ConfigurationError

TOP: Final = ("name", "delivery", "placement", "slo", "sources", "steps", "sinks")
SOURCE: Final = ("from", "columns", *SOURCE_OPTIONS)
VERBS: Final = ("where", "with", "select", "function", "window", "score", "union")
STEP: Final = ("name", "input", "columns", "key", "aggregate", "having", "place", "standby", "slo", *VERBS)
PLACE: Final = ("labels", "zone", "on")
SINK: Final = ("input", "to", "slo")
WINDOW: Final = ("tumbling", "hopping", "every", "session")
SCORE: Final = ("model", "inputs", "output", "on_error")
ON_ERROR: Final = ("fail", "skip")
NUMBERS: Final = ("int", "float")
STANDBYS: Final = ("0", "1")

OPTIONAL: Final = "optional "
"""Word before the type of a column in which values may be missing."""

TYPES: Final[dict[str, TypeName]] = {
    "int": "int",
    "float": "float",
    "text": "text",
    "bool": "bool",
    "time": "time",
}


class YamlApplication:
    """Translator of one file of YAML."""

    def __init__(self, text: str, start: TextPlace, code: ApplicationCode) -> None:
        self._document = read_yaml(text, start)
        self._code = code
        self._scope = RelationScope()
        self._places: dict[str, TextPlace] = {}
        self._last = ""

    def translate(self) -> None:
        """Translate the document. Raises `QueryFileError`."""
        parts = self._document.mapping("an application", TOP)
        for needed in ("sources", "sinks"):
            if needed not in parts:
                self._document.place.refuse(f"{needed}: is missing")
        if "name" in parts:
            self._code.name = self._checked_name(parts["name"])
        if "delivery" in parts:
            self._code.options["delivery"] = self._delivery(parts["delivery"])
        if "placement" in parts:
            self._code.options["placement"] = self._placement(parts["placement"])
        if "slo" in parts:
            self._code.options["slo"] = _slo(parts["slo"])
        for name, source in parts["sources"].mapping("sources").items():
            self._source(name, source)
        if "steps" in parts:
            for step in parts["steps"].items("steps"):
                self._step(step)
        for name, sink in parts["sinks"].mapping("sinks").items():
            self._sink(name, sink)
        for name in self._scope.unused:
            self._places[name].refuse(f"nothing reads {name}")

    def _checked_name(self, value: YamlValue) -> str:
        name = value.text("name")
        if not all(part.isalnum() or part in "-_." for part in name) or not name[:1].isalnum() or len(name) > 64:
            value.place.refuse("name: letters, digits, '-', '_' and '.', beginning with a letter or digit; at most 64")
        return name

    def _delivery(self, value: YamlValue) -> str:
        from agiledart_dataflow.plan.delivery import DELIVERIES

        if value.text("delivery") not in DELIVERIES:
            value.place.refuse(f"delivery is one of {', '.join(DELIVERIES)}")
        return value.text("delivery")

    def _placement(self, value: YamlValue) -> str:
        """Return `STRATEGY` or `STRATEGY:OBJECTIVE`; an agent knows which names there are."""
        strategy, colon, objective = value.text("placement").partition(":")
        if not strategy or (colon and not objective) or any(char in objective for char in ": "):
            value.place.refuse("placement is STRATEGY or STRATEGY:OBJECTIVE, such as odp:response")
        return value.text("placement")

    def _define(self, name: str, relation: Relation, place: TextPlace) -> None:
        self._scope.define(name, relation, place)
        self._places[name], self._last = place, name

    # ---- sources and sinks

    def _source(self, name: str, value: YamlValue) -> None:
        parts = value.mapping(f"source {name}", SOURCE)
        for needed in ("from", "columns"):
            if needed not in parts:
                value.place.refuse(f"{needed}: of source {name} is missing")
        self._scope.check_new(name, value.place)
        columns = self._declared(parts["columns"])
        time = parts["event_time"].text("event_time") if "event_time" in parts else ""
        if time:
            kind = dict(columns).get(time)
            if kind is None or kind.name not in ("time", "int"):
                parts["event_time"].place.refuse(
                    f"event_time names a column of type time, or int for milliseconds, not {time}"
                )
            columns = {**columns, time: ColumnType(kind.name, nullable=False)}
        options: dict[str, ast.expr] = {}
        for option, given in parts.items():
            if option not in ("from", "columns", "event_time"):
                options[option] = option_code(option, given.text(option), given.place)
        relation = self._code.source(name, _connector(parts["from"]), columns, options, time)
        self._define(name, relation, value.place)

    def _declared(self, value: YamlValue) -> Columns:
        """Return declared columns: `celsius: float`, or `celsius: optional float` where a value may be missing."""
        columns: dict[str, ColumnType] = {}
        for name, given in value.mapping("columns").items():
            kind = given.text("a type")
            if not is_identifier(name):
                given.place.refuse(
                    f"{name!r} cannot name a column: letters, digits and _, beginning with a letter, no reserved word"
                )
            optional = kind.startswith(OPTIONAL)
            kind = kind.removeprefix(OPTIONAL)
            if kind not in TYPES:
                given.place.refuse(
                    f"there is no type {kind}; there are {', '.join(TYPES)}, and 'optional' before one of them"
                )
            columns[name] = ColumnType(TYPES[kind], optional)
        if not columns:
            value.place.refuse("columns are missing")
        return columns

    def _sink(self, name: str, value: YamlValue) -> None:
        parts = value.mapping(f"sink {name}", SINK)
        if "to" not in parts:
            value.place.refuse(f"to: of sink {name} is missing")
        relation = self._input(parts.get("input"), value)
        self._scope.check_new(name, value.place)
        self._places[name] = value.place
        self._code.sink(relation, name, _connector(parts["to"]))
        if "slo" in parts:
            self._code.expect(self._code.steps[-1], _slo(parts["slo"]))

    def _input(self, value: YamlValue | None, reader: YamlValue) -> Relation:
        """Return the named stream, or the one before."""
        if value is not None:
            return self._scope.named(value.text("input"), value.place)
        return self._scope.named(self._last, reader.place)

    # ---- steps

    def _step(self, value: YamlValue) -> None:
        parts = value.mapping("a step", STEP)
        verbs = [verb for verb in VERBS if verb in parts]
        if len(verbs) != 1:
            value.place.refuse(f"a step has one of {', '.join(VERBS)}; this has {' and '.join(verbs) or 'none'}")
        verb = verbs[0]
        name = parts["name"].text("name") if "name" in parts else f"step{len(self._places)}"
        self._scope.check_new(name, value.place)
        allowed = {"window": ("key", "aggregate", "having"), "function": ("columns",)}.get(verb, ())
        for extra in ("key", "aggregate", "having", "columns"):
            if extra in parts and extra not in allowed:
                parts[extra].place.refuse(f"{extra} does not go with {verb}")
        before = len(self._code.steps)
        if verb == "union":
            relation = self._union(parts["union"], name)
        else:
            relation = self._of_one_stream(verb, parts, self._input(parts.get("input"), value), name, value)
        if "place" in parts:
            self._place(parts["place"], self._code.steps[before:])
        if "slo" in parts:
            self._code.expect(self._code.steps[-1], _slo(parts["slo"]))
        if "standby" in parts:
            if (number := parts["standby"].text("standby")) not in STANDBYS:
                parts["standby"].place.refuse("standby is 1, or 0 for none")
            self._code.standby(self._code.steps[before:], int(number))
        self._define(name, relation, value.place)

    def _place(self, value: YamlValue, steps: list[str]) -> None:
        """State which nodes may run a step of the file, which may be several of the topology."""
        parts = value.mapping("place", PLACE)
        rules: dict[str, Any] = {}
        for rule, given in parts.items():
            items = given.items(rule) if isinstance(given.value, list) else [given]
            texts = [item.text(rule) for item in items]
            rules[rule] = texts[0] if rule == "zone" else texts
        for step in steps:
            try:
                rules_from(step, [step], **{**_NO_RULES, **rules})
            except ValueError as error:
                value.place.refuse(str(error))
            self._code.place(step, rules)

    def _of_one_stream(self, verb: str, parts: Any, relation: Relation, name: str, value: YamlValue) -> Relation:
        if verb == "where":
            text, translator = self._expression(parts["where"], relation)
            return self._code.where(relation, translator.condition(text.expression()), name)
        if verb == "function":
            return self._function(parts["function"], parts.get("columns"), relation, name)
        if verb == "window":
            return self._window(parts, relation, name, value)
        if verb == "score":
            return self._score(parts["score"], relation, name)
        columns = (
            {} if verb == "select" else {old: TypedCode(py.column(old), kind) for old, kind in relation.columns.items()}
        )
        for column, given in parts[verb].mapping(verb).items():
            columns[column] = self._value(column, given, relation)
        return self._code.select(relation, columns, name)

    def _value(self, column: str, given: YamlValue, relation: Relation) -> TypedCode:
        if not is_identifier(column):
            given.place.refuse(
                f"{column!r} cannot name a column: letters, digits and _, beginning with a letter, no reserved word"
            )
        text, translator = self._expression(given, relation)
        typed = translator.translate(text.expression())
        if typed.type is None:
            given.place.refuse(f"{column} is always NULL, whose type is unknown")
        return typed

    def _expression(self, value: YamlValue, relation: Relation) -> tuple[SqlText, ExpressionTranslator]:
        text = SqlText(value.text("an expression"), value.place)
        visible = {name: (name, kind) for name, kind in relation.columns.items()}
        return text, ExpressionTranslator(text, visible, value.place, _Refusal(text, value.place))

    def _union(self, value: YamlValue, name: str) -> Relation:
        sides = [self._scope.named(item.text("a stream"), item.place) for item in value.items("union")]
        if len(sides) < 2:
            value.place.refuse("union takes at least two streams")
        first = sides[0].columns
        for side, item in zip(sides, value, strict=True):
            if {column: kind.name for column, kind in side.columns.items()} != {
                c: kind.name for c, kind in first.items()
            }:
                item.place.refuse(f"{item.text('a stream')} has other columns than the first: {', '.join(first)}")
        columns = {
            column: ColumnType(kind.name, any(side.columns[column].nullable for side in sides))
            for column, kind in first.items()
        }
        row_class = self._code.row_class(name, columns)
        renamed = [self._code.renamed(side, row_class, f"{name}-rows") for side in sides]
        others = [py.name(side.variable) for side in renamed[1:]]
        union = py.method(py.name(renamed[0].variable), "union", *others, name=py.value(self._code.step(name)))
        times = frozenset.intersection(*(side.times for side in sides))
        return Relation(self._code.add(name, union), columns, times)

    def _function(self, value: YamlValue, declared: YamlValue | None, relation: Relation, name: str) -> Relation:
        """Call a user's function: a condition without `columns:`, else a function that returns a row, none or several."""
        file, colon, function = value.text("function").rpartition(":")
        if not colon or not file.endswith(".py") or not is_identifier(file[:-3]) or not is_identifier(function):
            value.place.refuse("write function: FILE.py:NAME; the file lies beside this one")
        variable = py.name(self._code.function(file[:-3], function))
        step = py.value(self._code.step(name))
        if declared is None:
            code = py.method(py.name(relation.variable), "filter", variable, step)
            return Relation(self._code.add(name, code), relation.columns, relation.times)
        columns = self._declared(declared)
        row_class = self._code.row_class(name, columns)
        self._code.calls_functions = True
        code = py.method(
            py.name(relation.variable),
            "flat_map",
            _rows_of_function(variable, row_class),
            step,
            returns=py.name(row_class),
        )
        times = frozenset(time for time in relation.times if columns.get(time) == relation.columns[time])
        return Relation(self._code.add(name, code), columns, times)

    # ---- models

    def _score(self, value: YamlValue, relation: Relation, name: str) -> Relation:
        """Score rows by the ONNX model that a connector gives; without `file:` a path is that of a file."""
        parts = value.mapping("score", SCORE)
        for needed in ("model", "inputs"):
            if needed not in parts:
                value.place.refuse("score takes a model and its inputs: {model: quality.onnx, inputs: [celsius]}")
        inputs = [item.text("inputs") for item in parts["inputs"].items("inputs")]
        for column, item in zip(inputs, parts["inputs"].items("inputs"), strict=True):
            kind = relation.columns.get(column)
            if kind is None:
                item.place.refuse(f"there is no column {column}; there are {', '.join(relation.columns)}")
            if kind.name not in NUMBERS:
                item.place.refuse(f"a model takes numbers, and {column} is of type {kind.name}")
        if not inputs:
            parts["inputs"].place.refuse("inputs: [column, …] in the order of the model")
        output = parts["output"].text("output") if "output" in parts else "score"
        version = f"{output}_version"
        if not is_identifier(output) or {output, version} & set(relation.columns):
            value.place.refuse(f"{output!r} cannot name the score; {', '.join(relation.columns)} are taken")
        on_error = parts["on_error"].text("on_error") if "on_error" in parts else ON_ERROR[0]
        if on_error not in ON_ERROR:
            parts["on_error"].place.refuse(f"on_error is one of {', '.join(ON_ERROR)}")
        model = self._model(parts["model"], f"{name}_model")
        return self._code.score(relation, model, inputs, output, name, on_error)

    def _model(self, value: YamlValue, parameter: str) -> str:
        """Add the parameter of a model and return the variable of its stream."""
        connector = model_connector(value.text("model"), value.place)
        self._scope.reserve(parameter, value.place)
        return self._code.model(parameter, connector)

    # ---- windows

    def _window(self, parts: Any, relation: Relation, name: str, value: YamlValue) -> Relation:
        if "aggregate" not in parts:
            value.place.refuse("a window needs aggregate: {name: AVG(column)}")
        if not relation.times:
            value.place.refuse("a window needs event times: give the source event_time, and keep that column")
        window = self._window_clause(parts["window"])
        keys: dict[str, TypedCode] = {}
        if "key" in parts:
            given = parts["key"]
            for item in given if isinstance(given.value, list) else [given]:
                column = item.text("key")
                if column not in relation.columns:
                    item.place.refuse(f"there is no column {column}; there are {', '.join(relation.columns)}")
                keys[column] = TypedCode(py.column(column), relation.columns[column])
        prepared = {f"key_{number}": key for number, key in enumerate(keys.values())}
        results: dict[str, TypedCode] = {
            column: TypedCode(py.column(f"key_{number}"), key.type) for number, (column, key) in enumerate(keys.items())
        }
        results["window_start"] = TypedCode(py.column("start_ms"), ColumnType("int", nullable=False))
        results["window_end"] = TypedCode(py.column("end_ms"), ColumnType("int", nullable=False))
        collected = _Collected()
        for column, aggregate in parts["aggregate"].mapping("aggregate").items():
            if not is_identifier(column) or column in results:
                aggregate.place.refuse(f"{column!r} cannot name a result; {', '.join(results)} are taken")
            results[column] = self._aggregate(aggregate, relation, collected)
        before = self._code.select(relation, {**(prepared or _ONE_KEY), **collected.arguments}, f"{name}-prepare")
        keyed = py.method(py.name(before.variable), "key_by", *(py.column(key) for key in (prepared or _ONE_KEY)))
        panes = py.method(
            py.method(keyed, "window", window.code(parts["window"].place)),
            "aggregate",
            py.value(self._code.step(f"{name}-window")),
            **(collected.results or {"result_0": py.call(py.name("count"))}),
        )
        selected = self._code.select(Relation(self._code.add(name, panes), {}), results, name)
        relation = Relation(selected.variable, selected.columns, frozenset({WINDOW_COLUMNS[1]}))
        if "having" not in parts:
            return relation
        text, translator = self._expression(parts["having"], relation)
        return self._code.where(relation, translator.condition(text.expression()), f"{name}-having")

    def _aggregate(self, value: YamlValue, relation: Relation, collected: "_Collected") -> TypedCode:
        """Translate one aggregate expression; its arguments and results are collected with those of the others."""
        text = SqlText(value.text("an aggregate"), value.place)
        visible = {name: (name, kind) for name, kind in relation.columns.items()}
        aggregates = WindowAggregates(ExpressionTranslator(text, visible, value.place))
        aggregates.arguments, aggregates.results = collected.arguments, collected.results

        def special(node: Any) -> TypedCode | None:
            if (aggregate := aggregates.translate(node)) is not None:
                return aggregate
            if node.key == "column":
                ExpressionTranslator(text, visible, value.place).translate(node)
                text.place_of_node(node, value.place).refuse(
                    f"{node.sql()} stands outside of an aggregate: AVG({node.sql()})"
                )
            return None

        typed = ExpressionTranslator(text, {}, value.place, special).translate(text.expression())
        if typed.type is None:
            value.place.refuse("the result is always NULL, whose type is unknown")
        return typed

    def _window_clause(self, value: YamlValue) -> WindowClause:
        parts = value.mapping("window", WINDOW)
        spans = {name: span_of(given.text(name), given.place) for name, given in parts.items()}
        if set(parts) == {"tumbling"}:
            return WindowClause("TUMBLE", [spans["tumbling"]])
        if set(parts) == {"hopping", "every"}:
            return WindowClause("HOP", [spans["every"], spans["hopping"]])
        if set(parts) != {"session"}:
            value.place.refuse("a window is tumbling: 1m, or hopping: 5m with every: 1m, or session: 30s")
        return WindowClause("SESSION", [spans["session"]])


class _Collected:
    """Arguments and results of all aggregates of one window."""

    def __init__(self) -> None:
        self.arguments: dict[str, TypedCode] = {}
        self.results: dict[str, ast.expr] = {}


class _Refusal:
    """Refusal of aggregates in expressions of single rows."""

    def __init__(self, text: SqlText, place: TextPlace) -> None:
        self._text, self._place = text, place

    def __call__(self, node: Any) -> TypedCode | None:
        if node.key in AGGREGATES:
            self._text.place_of_node(node, self._place).refuse(
                f"{node.sql()[:60]} needs a window and belongs in aggregate"
            )
        return None


_NO_RULES: Final[dict[str, Any]] = {"labels": (), "zone": "", "on": (), "together_with": (), "apart_from": ()}

_ONE_KEY: Final = {"key_0": TypedCode(py.literal(0), ColumnType("int", nullable=False))}


def _slo(value: YamlValue) -> str:
    """Return the time that a row may take, as its text."""
    try:
        slo_ms_of(value.text("slo"))
    except ValueError:
        value.place.refuse(f"slo is {value.text('slo')!r}; it is a time above 0 with its unit, as 500ms or 2s")
    return value.text("slo")


def _connector(value: YamlValue) -> Connector:
    try:
        return parse_connector(value.text("a connector"))
    except ConfigurationError as error:
        value.place.refuse(str(error))


def _rows_of_function(function: ast.expr, row_class: str) -> ast.expr:
    """Return `lambda row: rows_of(function(row), Row)`; the helper stands in the generated module."""
    parameters = ast.arguments([], [ast.arg("row")], None, [], [], None, [])
    return ast.Lambda(parameters, py.call(py.name("rows_of"), py.call(function, py.name("row")), py.name(row_class)))
