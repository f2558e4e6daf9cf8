"""Return type of a lambda, from its bytecode: it is read, never called. A user's code must not run while a graph is built.

The tracer understands lambdas that only select and combine: fields, tuples of them, texts, calls of classes and of functions with
a return annotation. For all others, above all where the lambda decides or computes, the user must give the type.
"""

import dis
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, get_args, get_origin

from agiledart_dataflow.data.schema import SchemaError, fields_of, is_dict, is_named_tuple


class UnknownTypeError(Exception):
    """Error: the type does not follow from the function; the user has to write `returns=`."""


Annotation = Callable[[Callable[..., Any]], Any]
"""Function → its annotated return type; raises `UnknownTypeError`."""

_NOTHING: Final = frozenset(
    {"RESUME", "CACHE", "NOP", "PRECALL", "COPY_FREE_VARS", "MAKE_CELL", "EXTENDED_ARG", "NOT_TAKEN"}
)
_NULL: Final = object()

_BUILTINS: Final = {"str": str, "repr": str, "int": int, "len": int, "float": float, "bool": bool, "bytes": bytes}

_WHY: Final = (
    (("POP_JUMP", "JUMP", "FOR_ITER", "GET_ITER"), "it decides something"),
    (("BINARY", "COMPARE", "UNARY", "IS_OP", "CONTAINS_OP", "TO_BOOL"), "it computes with the value"),
    (("MAKE_FUNCTION",), "there is another function in it"),
)


class _Value:
    """Item on the stack: a value of a type (`kind`), or a known object (`known`)."""

    __slots__ = ("kind", "known")

    def __init__(self, kind: Any = None, known: Any = _NULL) -> None:
        self.kind, self.known = kind, known


class _Method:
    __slots__ = ("name", "of")

    def __init__(self, of: Any, name: str) -> None:
        self.of, self.name = of, name


def type_of_lambda(function: FunctionType, row_type: Any, annotation: Annotation) -> Any:
    """Return the type that a lambda returns for rows of a type. Raises `UnknownTypeError`."""
    return _BytecodeTracer(function, row_type, annotation).result()


def attribute_read(function: FunctionType) -> str | None:
    """Return the attribute of its one parameter that a lambda returns unchanged (`lambda trip: trip.ts`); None for all others."""
    steps = [step for step in dis.get_instructions(function) if step.opname not in _NOTHING]
    names = [step.opname.removesuffix("_BORROW") for step in steps]
    if names != ["LOAD_FAST", "LOAD_ATTR", "RETURN_VALUE"] or steps[0].argval != function.__code__.co_varnames[0]:
        return None
    return str(steps[1].argval)


class _BytecodeTracer:
    """One pass over a lambda's instructions, with types in place of values."""

    def __init__(self, function: FunctionType, row_type: Any, annotation: Annotation) -> None:
        self._function, self._annotation = function, annotation
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self._here: dict[str, _Value] = {names[0]: _Value(row_type)} if names else {}
        defaults = function.__defaults__ or ()
        for name, value in zip(names[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True):
            self._here.setdefault(name, _Value(type(value), value))
        self._stack: list[Any] = []
        self._words: tuple[str, ...] = ()

    def result(self) -> Any:
        """Return the type of the returned value."""
        for step in dis.get_instructions(self._function):
            if step.opname in _NOTHING:
                continue
            if step.opname == "RETURN_CONST":
                return type(step.argval)
            if step.opname == "RETURN_VALUE":
                return self._kind(self._pop())
            handler = vars(_BytecodeTracer).get(f"_{step.opname.lower()}")
            if handler is None:
                raise UnknownTypeError(_why(step.opname))
            handler(self, step)
        raise UnknownTypeError("it returns nothing")

    def _pop(self) -> Any:
        if not self._stack:
            raise UnknownTypeError("it does something unusual")
        return self._stack.pop()

    def _pop_many(self, count: int) -> list[Any]:
        return [self._pop() for _ in range(count)][::-1]

    def _kind(self, value: Any) -> Any:
        if isinstance(value, _Value) and value.kind is not None:
            return value.kind
        raise UnknownTypeError("it returns something other than a plain value")

    # ---- origin of values

    def _load_fast(self, step: dis.Instruction) -> None:
        if step.argval not in self._here:
            raise UnknownTypeError(f"it uses {step.argval}")
        self._stack.append(self._here[step.argval])

    _load_fast_check = _load_fast_borrow = _load_fast

    def _load_fast_load_fast(self, step: dis.Instruction) -> None:
        for name in step.argval:
            self._load_fast(step._replace(argval=name))

    _load_fast_borrow_load_fast_borrow = _load_fast_load_fast

    def _load_const(self, step: dis.Instruction) -> None:
        self._stack.append(_Value(type(step.argval), step.argval))

    _load_small_int = _load_const

    def _load_global(self, step: dis.Instruction) -> None:
        name = step.argval
        if (step.arg or 0) & 1:
            self._stack.append(_NULL)
        if name in self._function.__globals__:
            known = self._function.__globals__[name]
        elif name in _BUILTINS:
            known = _BUILTINS[name]
        else:
            raise UnknownTypeError(f"it uses {name}")
        self._stack.append(_Value(type(known), known))

    def _load_deref(self, step: dis.Instruction) -> None:
        free = self._function.__code__.co_freevars
        if step.argval not in free:
            raise UnknownTypeError(f"it uses {step.argval}")
        try:
            known = (self._function.__closure__ or ())[free.index(step.argval)].cell_contents
        except ValueError:  # the variable will be set when the lambda runs
            raise UnknownTypeError(f"it uses {step.argval}") from None
        self._stack.append(_Value(type(known), known))

    def _push_null(self, step: dis.Instruction) -> None:
        self._stack.append(_NULL)

    # ---- parts of values

    def _load_attr(self, step: dis.Instruction) -> None:
        owner = self._pop()
        if isinstance(owner, _Value) and isinstance(owner.known, type):
            raise UnknownTypeError(f"it uses .{step.argval} of a class")
        is_method = "NULL|self" in (step.argrepr or "")
        kind = self._kind(owner)
        field_type = _field(kind, step.argval, self._annotation)
        if field_type is not None:
            self._stack += [_NULL, _Value(field_type)] if is_method else [_Value(field_type)]
        elif is_method:
            self._stack += [_Method(kind, step.argval), _NULL]
        else:
            raise UnknownTypeError(f"it uses .{step.argval}")

    def _load_method(self, step: dis.Instruction) -> None:
        self._stack += [_Method(self._kind(self._pop()), step.argval), _NULL]

    def _binary_subscr(self, step: dis.Instruction) -> None:
        index, of = self._pop(), self._pop()
        self._stack.append(_Value(_item(self._kind(of), index.known if isinstance(index, _Value) else None)))

    # ---- combination of values

    def _build_tuple(self, step: dis.Instruction) -> None:
        parts = [self._kind(part) for part in self._pop_many(step.arg or 0)]
        self._stack.append(_Value(tuple[tuple(parts)]))  # type: ignore[misc]  # built at run time

    def _format_value(self, step: dis.Instruction) -> None:
        self._pop_many(2 if (step.arg or 0) & 4 else 1)
        self._stack.append(_Value(str))

    def _format_simple(self, step: dis.Instruction) -> None:
        self._pop()
        self._stack.append(_Value(str))

    _convert_value = _format_simple

    def _format_with_spec(self, step: dis.Instruction) -> None:
        self._pop_many(2)
        self._stack.append(_Value(str))

    def _build_string(self, step: dis.Instruction) -> None:
        self._pop_many(step.arg or 0)
        self._stack.append(_Value(str))

    def _kw_names(self, step: dis.Instruction) -> None:
        """Skip the names of the last arguments of the next call; they do not matter for its type."""

    def _call(self, step: dis.Instruction) -> None:
        self._pop_many(step.arg or 0)
        parts = [part for part in self._pop_many(2) if part is not _NULL]
        if len(parts) != 1:
            raise UnknownTypeError("it calls something")
        self._stack.append(_Value(self._called(parts[0])))

    def _call_kw(self, step: dis.Instruction) -> None:
        self._pop()
        self._call(step)

    def _called(self, target: Any) -> Any:
        if isinstance(target, _Method):
            method = getattr(target.of if isinstance(target.of, type) else get_origin(target.of), target.name, None)
            if isinstance(method, FunctionType):
                return self._annotation(method)
            raise UnknownTypeError(f"it calls .{target.name}()")
        known = target.known
        if known is repr or known is len:
            return _BUILTINS[known.__name__]
        if known is _NULL or not callable(known):
            raise UnknownTypeError("it calls something")
        if isinstance(known, type) and not is_named_tuple(known) and type(known) is not type:
            raise UnknownTypeError(f"it calls {known.__name__}")
        return self._annotation(known)


def _why(operation: str) -> str:
    return next((why for starts, why in _WHY if operation.startswith(starts)), "it does more than select fields")


def _field(kind: Any, name: str, annotation: Annotation) -> Any:
    """Return the type of a field, or of a property with a return annotation; None: there is none of this name."""
    try:
        fields = fields_of(kind)
    except SchemaError as error:
        raise UnknownTypeError(str(error)) from None
    for field in fields:
        if field.name == name:
            return field.type
    member = getattr(get_origin(kind) or kind, name, None)
    return annotation(member.fget) if isinstance(member, property) and member.fget is not None else None


def _item(kind: Any, index: Any) -> Any:
    fields = fields_of(kind)
    if is_dict(kind):
        raise UnknownTypeError("the values of a dict have no types of their own")
    if not isinstance(index, int):
        raise UnknownTypeError("it looks something up")
    try:
        if fields and is_named_tuple(get_origin(kind) or kind):
            return fields[index].type
        arguments = get_args(kind)
        if get_origin(kind) is tuple and ... not in arguments:
            return arguments[index]
    except IndexError:
        raise UnknownTypeError(f"there is no [{index}]") from None
    raise UnknownTypeError("it looks something up")
