"""Expression as a piece of Python text: for the generated loop of a stage, and as a function of its own."""

from collections.abc import Callable
from itertools import count
from math import isfinite
from typing import Any, Protocol

from agiledart_dataflow.data.schema import ReadTime
from agiledart_dataflow.expressions.functions import FUNCTIONS
from agiledart_dataflow.expressions.nodes import Typed, TypedCall, TypedField, TypedLiteral, TypedWhen
from agiledart_dataflow.user_code.user_errors import EXPRESSION_FILE


class NameBinder(Protocol):
    """Registry of a loop for values that its text cannot spell."""

    def bind(self, value: Any) -> str:
        """Return a name by which the text can use the value; the same one for the same object is allowed."""
        ...


class Scope:
    """`NameBinder` of a function of its own.

    Attributes:
        values: by name.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def bind(self, value: Any) -> str:
        name = f"k{len(self.values)}"
        self.values[name] = value
        return name

    def function(self, text: str) -> Callable[..., Any]:
        """Return the lambda in `text`, with these names in scope; the engine wrote the text, no part of it comes from the user."""
        made: Callable[..., Any] = eval(compile(text, EXPRESSION_FILE, "eval"), self.values)
        return made


class PythonText:
    """Writer of expressions as Python text.

    Args:
        access: field → text of its value.
        names: registry of constants.
    """

    def __init__(self, access: Callable[[str], str], names: NameBinder) -> None:
        self._access = access
        self._names = names
        self._numbers = count()

    def of(self, node: Typed) -> str:
        """Return the text of an expression; None propagates as the types allow."""
        if isinstance(node, TypedField):
            return self._access(node.name)
        if isinstance(node, TypedLiteral):
            return self.literal(node.value)
        if isinstance(node, TypedWhen):
            text = "".join(f"{self.of(value)} if {self.of(condition)} else " for condition, value in node.branches)
            return f"({text}{self.of(node.otherwise)})"
        return self._call(node)

    def literal(self, value: Any) -> str:
        """Return the text of a constant."""
        if value is None or isinstance(value, bool | str | bytes):
            return repr(value)
        if type(value) is int or (type(value) is float and isfinite(value)):
            return f"({value!r})" if str(value).startswith("-") else repr(value)
        return self._names.bind(value)

    def _call(self, node: TypedCall) -> str:
        if node.name == "is_null":
            if isinstance(node.arguments[0], TypedLiteral):
                return repr(node.arguments[0].value is None)
            return f"({self.of(node.arguments[0])} is None)"
        if node.name == "fill_null":
            if not node.arguments[0].type.optional:
                return self.of(node.arguments[0])
            temporary = self._temporary()
            value, other = map(self.of, node.arguments)
            return f"({temporary} if ({temporary} := {value}) is not None else {other})"
        if node.name in ("and", "or"):
            return self._logic(node)
        texts = []
        missing = []
        for argument in node.arguments:
            text = self.of(argument)
            if argument.type.optional:
                temporary = self._temporary()
                missing.append(f"({temporary} := {text}) is None")
                text = temporary
            texts.append(text)
        text = self.applied(node, texts)
        return f"(None if {' or '.join(missing)} else {text})" if missing else text

    def applied(self, node: TypedCall, texts: list[str]) -> str:
        """Return the text of a function of these arguments, none of which is None."""
        function = FUNCTIONS[node.name]
        template = function.text
        if node.name == "round" and node.options == (None,):
            template = "round({0})"
        if node.name == "cast" and node.options == (ReadTime,):  # the same int by another name
            template = "{0}"
        if node.name == "slice":
            start, stop = ("" if limit is None else str(limit) for limit in node.options)
            template = f"{{0}}[{start}:{stop}]"
        bound = []
        if "{bound" in template:
            value = node.options[0]
            bound.append(self._names.bind(frozenset(value) if node.name == "is_in" else value))
        for name, helper in function.helpers.items():
            template = template.replace(f"{name}(", f"{self._names.bind(helper)}(")
        return template.format(*texts, all=", ".join(texts), options=node.options, bound=bound)

    def _logic(self, node: TypedCall) -> str:
        """Return the text of `and` and `or` in three-valued logic: None means unknown."""
        left, right = node.arguments
        if not node.type.optional:
            return f"({self.of(left)} {node.name} {self.of(right)})"
        left_name, right_name = self._temporary(), self._temporary()
        deciding, neutral = ("False", "True") if node.name == "and" else ("True", "False")
        return (
            f"({deciding} if ({left_name} := {self.of(left)}) is {deciding} or ({right_name} := {self.of(right)}) is {deciding}"
            f" else None if {left_name} is None or {right_name} is None else {neutral})"
        )

    def _temporary(self) -> str:
        return f"_t{next(self._numbers)}"


def function_of_call(node: TypedCall) -> Callable[..., Any]:
    """Return a call as a Python function of its arguments, none of which is None."""
    names = Scope()
    parameters = [f"a{number}" for number in range(len(node.arguments))]
    text = PythonText(str, names).applied(node, parameters)
    return names.function(f"lambda {', '.join(parameters)}: {text}")
