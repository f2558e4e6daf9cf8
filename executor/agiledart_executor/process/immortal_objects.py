"""Objects that are never counted again, so that forked processes go on sharing the pages that hold them.

Python writes to each object that it uses: the count of its references. So a forked process soon has most pages of its own. From
Python 3.12 on, objects with the greatest count are immortal (PEP 683): Python leaves their counts alone. The nursery gives that
count to the functions, types and constants that it has imported, once, before it forks. They live as long as its processes in any
case. Objects with a resource, such as sockets, files and locks, are left as they are.
"""

import ctypes
import gc
import sys
import types
from typing import Final

IMMORTAL_COUNT: Final = 0xFFFF_FFFF
"""Count of immortal objects in CPython 3.12 and 3.13, on 64 bits."""

_PROGRAM_TYPES: Final = (
    bytes, classmethod, dict, float, frozenset, int, property, staticmethod, str, tuple, type,
    types.BuiltinFunctionType, types.CellType, types.ClassMethodDescriptorType, types.CodeType, types.FunctionType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType, types.ModuleType,
    types.WrapperDescriptorType,
)  # fmt: skip


def has_immortal_objects() -> bool:
    """Return whether this interpreter has immortal objects with the count that is known here."""
    return (
        sys.implementation.name == "cpython"
        and (3, 12) <= sys.version_info < (3, 14)
        and sys.maxsize > 1 << 32
        and sys.getrefcount(None) == IMMORTAL_COUNT
    )


def keep_for_ever() -> int:
    """Make all functions, types and constants of this process immortal, where Python can. Return their number.

    Call it once, in a process without threads that does not end by the interpreter's own clean-up.
    """
    if not has_immortal_objects():
        return 0
    objects: list[object] = gc.get_objects()  # before the variables below, which are none of them
    is_program: dict[type, bool] = {}
    others: set[int] = set()
    count = 0
    while objects:
        fresh: list[object] = []
        for item in objects:
            if sys.getrefcount(item) == IMMORTAL_COUNT or id(item) in others:
                continue
            kind = type(item)
            if kind not in is_program:
                is_program[kind] = issubclass(kind, _PROGRAM_TYPES)
            fresh.append(item)
            if is_program[kind]:
                ctypes.c_ssize_t.from_address(id(item)).value = IMMORTAL_COUNT
                count += 1
            else:
                others.add(id(item))
        objects = gc.get_referents(*fresh)
        for item in fresh:
            if type(item) is types.CodeType:  # the collector does not know what code refers to
                objects += (item.co_consts, item.co_names, item.co_filename, item.co_name, item.co_qualname)
                objects += (item.co_linetable, item.co_exceptiontable)
    return count
