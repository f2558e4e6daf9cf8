"""The verbs that take expressions or work on many rows at once. They mix freely with functions of rows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from agiledart_dataflow.data.column_schema import schema_of
from agiledart_dataflow.data.schema import SchemaError, check_key
from agiledart_dataflow.expressions.expression import Expression, col, node_of
from agiledart_dataflow.expressions.nodes import Field
from agiledart_dataflow.expressions.row_expression import KeyExpression, RowBuilder, RowExpression
from agiledart_dataflow.expressions.row_types import made_row_type
from agiledart_dataflow.graph.handles import step_name
from agiledart_dataflow.graph.row_verbs import RowVerbs
from agiledart_dataflow.operators.batch_functions import VectorFunction, form_of
from agiledart_dataflow.operators.vector_chain import VectorBuild, VectorWhere
from agiledart_dataflow.user_code.callsite import CallSite, call_site
from agiledart_dataflow.user_code.error_policy import ErrorPolicy, error_policy

if TYPE_CHECKING:
    from agiledart_dataflow.graph.keyed_stream import KeyedStream
    from agiledart_dataflow.graph.streams import Stream

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")


class ColumnarVerbs(RowVerbs[T]):
    """Verbs on streams: `where`, `with_columns`, `select`, `map_batches`, and `key_by` with expressions.

    Steps of expressions need no name; they get the verb's, numbered from the second on. `step_name` gives another.
    """

    def where(
        self, condition: Expression, *, step_name: str | None = None, on_error: ErrorPolicy = "fail"
    ) -> "Stream[T]":
        """The rows for which a condition is True; those for which it is False or None are dropped."""
        where = call_site()
        given: Any = condition
        if not isinstance(given, Expression):
            hint = "; for a function of a row there is .filter" if callable(given) else ""
            raise where.error(f'where() takes an expression such as col("fare") > 10, not {given!r}{hint}')
        value = RowExpression(condition.node, self._row_type, where)
        if value.type.kind != "bool":
            raise where.error(f"where() takes a condition, which is True or False, not a value of type {value.type}")
        make = {"inline": value, "vector": VectorWhere(value)}
        return self._expressed("where", step_name, self._row_type, repr(condition.node), make, on_error, where)

    def with_columns(
        self, *, step_name: str | None = None, on_error: ErrorPolicy = "fail", **columns: object
    ) -> "Stream[Any]":
        """The rows with more fields, or other values in fields that they have: `.with_columns(ratio=col("tip") / col("fare"))`."""
        where = call_site()
        if not columns:
            raise where.error(
                'with_columns() takes fields and their values: .with_columns(ratio=col("tip") / col("fare"))'
            )
        kept = {field.name: col(field.name) for field in schema_of(self._row_type).fields}
        return self._built("with_columns", step_name, {**kept, **columns}, on_error, where)

    def select(
        self, *fields: str | Expression, step_name: str | None = None, on_error: ErrorPolicy = "fail", **columns: object
    ) -> "Stream[Any]":
        """Rows with these fields only: `.select("zone", ratio=col("tip") / col("fare"))`."""
        where = call_site()
        values: dict[str, object] = {}
        for field in fields:
            name = field.node.name if isinstance(field, Expression) and isinstance(field.node, Field) else field
            if not isinstance(name, str):
                raise where.error("select() takes names of fields; give a value a name of its own: .select(ratio=…)")
            if name in values or name in columns:
                raise where.error(f"select() names {name!r} twice")
            values[name] = col(name)
        if not values and not columns:
            raise where.error('select() takes at least one field: .select("zone", ratio=col("tip") / col("fare"))')
        return self._built("select", step_name, {**values, **columns}, on_error, where)

    def map_batches(
        self,
        function: Callable[[Any], Any],
        name: str | None = None,
        *,
        returns: type[U] | None = None,
        resizes: bool = False,
        on_error: ErrorPolicy = "fail",
    ) -> "Stream[U]":
        """A function of many rows at once; it returns as many, of the type `returns` (or of the same type).

        It gets a pyarrow.RecordBatch, or what its parameter is annotated with: `dict` (field → NumPy array) or
        `polars.DataFrame`; it may return any of them. With `resizes=True` it returns fewer or more rows, and beside them their
        origins, `(rows, origins)`: for each the number of the row of the batch from which it was made, counting up. It then has
        that row's time. Where batches end depends on timing: each row's results must not depend on its neighbours.
        With another `on_error` than "fail" it is called again for ever smaller parts of a batch at which it raises, so that
        only the rows at fault are let go.
        """
        where = call_site()
        name = step_name(function, name, "map_batches", where)
        row_type: Any = self._row_type if returns is None else returns
        schema_of(row_type)
        policy = error_policy(on_error, where)
        vector = VectorFunction(name, function, form_of(function, where), row_type, resizes=resizes, policy=on_error)
        options = (*((("yields", "many"),) if resizes else ()), *policy["options"])
        make = {"vector": vector, **policy["make"]}
        index = self._add(name, "map_batches", row_type, where, function=function, options=options, make=make)
        return self._topology.stream(index)

    @overload
    def key_by(self, function: Expression, *more: Expression) -> "KeyedStream[Any, T]": ...
    @overload
    def key_by(self, function: Callable[[T], K], *, returns: type[K] | None = None) -> "KeyedStream[K, T]": ...
    def key_by(self, function: Any, *more: Any, returns: Any = None) -> "KeyedStream[Any, T]":
        """Rows with a key: a function of a row, or one or more expressions, `.key_by(col("zone"))`.

        Equal keys meet in the same place. Not a step of its own, so it has no name.
        """
        if not isinstance(function, Expression):
            if more:
                raise call_site().error("key_by() takes one function of a row, or expressions: .key_by(col(…), col(…))")
            return super().key_by(function, returns=returns)
        where = call_site()
        for one in more:
            if not isinstance(one, Expression):
                raise where.error(
                    f"key_by() takes expressions or one function of a row, not {one!r} beside an expression"
                )
        key = KeyExpression(tuple(RowExpression(one.node, self._row_type, where) for one in (function, *more)))
        try:
            check_key(key.type)
        except SchemaError as error:
            raise where.error(f"the key: {error}") from None
        from agiledart_dataflow.graph.keyed_stream import KeyedStream  # the handles know each other

        return KeyedStream(self._topology, self._index, key, key.type)

    def _built(
        self, verb: str, step: str | None, values: dict[str, object], on_error: ErrorPolicy, where: CallSite
    ) -> "Stream[Any]":
        made = {name: RowExpression(node_of(value), self._row_type, where) for name, value in values.items()}
        for name, value in made.items():
            if value.type.type is type(None):
                raise where.error(f"{name} is always None, whose type is not known")
        old = {field.name: field.type for field in schema_of(self._row_type).fields}
        step = self._free_name(verb, step)
        fields = {
            name: old[value.field] if value.field is not None else value.type.annotation for name, value in made.items()
        }
        row_type = made_row_type(step, fields, where)
        builder = RowBuilder(row_type, self._row_type, made)
        nodes = repr([(name, value.node) for name, value in made.items()])
        make = {"inline": builder, "vector": VectorBuild(builder)}
        return self._expressed(verb, step, row_type, nodes, make, on_error, where)

    def _expressed(
        self,
        verb: str,
        step: str | None,
        row_type: Any,
        meaning: str,
        make: dict[str, Any],
        on_error: ErrorPolicy,
        where: CallSite,
    ) -> "Stream[Any]":
        """Add a step of expressions; what it means is part of the specification."""
        policy = error_policy(on_error, where)
        options = (("expressions", meaning), *policy["options"])
        index = self._add(
            self._free_name(verb, step),
            verb,
            row_type,
            where,
            function=make["inline"],
            options=options,
            make={**make, **policy["make"]},
        )
        return self._topology.stream(index)

    def _free_name(self, verb: str, given: str | None) -> str:
        if given is not None:
            return given
        taken = {step.name for step in self._topology.steps}
        number = 1
        while (name := verb if number == 1 else f"{verb}-{number}") in taken:
            number += 1
        return name
