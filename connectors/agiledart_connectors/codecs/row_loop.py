"""Generated loops: columns as texts → rows, for records that are beyond doubt; others are left to the careful way.

Two loops for each type of rows: over lines, which are printable ASCII without quotes and `_`, and over the cells of records.
Neither accepts what the careful way would refuse.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from agiledart_connectors.codecs.csv_values import LEAST, MOST, ColumnRule, read_boolean, read_decimal, read_float
from agiledart_connectors.codecs.decoder_options import CsvDialect

Loop = Callable[..., None]
"""(lines or records, wall time, push a row, malformed by reason)."""

_FAST: Final = {
    str: "{}",
    float: "float({})",
    int: "int({})",
    Decimal: "decimal({})",
    bool: "boolean({})",
}

_DOUBTFUL: Final = re.compile(r"[^0-9+\-.eE]")
"""Characters that Python may take as part of a number and the careful way does not: `_`, spaces, digits of other scripts."""


class _Conversions(NamedTuple):
    """Text of a loop.

    Attributes:
        lines: conversions of columns, in turn.
        sums: floats that must be finite.
        numbers: columns whose texts may be wider than numbers, within an f-string.
    """

    lines: list[str]
    sums: list[str]
    numbers: str


def compile_loop(
    rules: Sequence[ColumnRule],
    places: Sequence[int],
    width: int,
    fields: Sequence[bool],
    make: str,
    dialect: CsvDialect,
    scope: dict[str, Any],
    *,
    records: bool,
) -> Loop:
    """Return a loop.

    Args:
        rules: of the columns that are read.
        places: where each of them stands.
        width: columns of a record.
        fields: for each field whether it is the time of reading, no column.
        make: text that makes a row of `{}`, the values in parentheses.
        dialect: how the columns are written.
        scope: names that `make` uses, and `judge`, the careful way for one record.
        records: over `Record`s, not lines.
    """
    read = [f"a{i}" for i in range(width)]
    names = [read[place] for place in places]
    conversions = _conversions(rules, names, dialect, records=records)
    columns = iter(names)
    made = ", ".join("wall_ns" if is_read_time else next(columns) for is_read_time in fields)
    push = f"push({make.format(f'({made},)')})"
    split = "record" if records else f"record.split({dialect.delimiter!r})"
    target = f"({', '.join(read)},), _, _" if records else f"{', '.join(read)},"
    numbers, sums = conversions.numbers, conversions.sums
    doubt = f"doubtful(f'{numbers}')" if records else f"' ' in f'{numbers}'"
    lines = [
        "def loop(records, wall_ns, push, malformed):",
        " for record in records:",
        "  try:",
        f"   {target} = {split}",
        *([f"   if {doubt}: raise ValueError"] if numbers else []),
        *conversions.lines,
        *([f"   total = {' + '.join(sums)}", f"   if total - total == 0.0: {push}; continue"] if sums else []),
        *([] if sums else [f"   {push}; continue"]),
        "  except (ValueError, ArithmeticError):",  # of Decimal the latter
        "   pass",
        "  judge(record, wall_ns, push, malformed)",
    ]
    names_of_loop: dict[str, Any] = {
        **scope,
        **{f"read{number}": rule.read for number, rule in enumerate(rules)},
        "nulls": dialect.nulls,
        "quoted_null": dialect.may_be_quoted,
        "doubtful": _DOUBTFUL.search,
        "decimal": Decimal,
        "boolean": read_boolean,
        "careful_float": read_float,
        "careful_decimal": read_decimal,
    }
    exec("\n".join(lines), names_of_loop)  # our own text: field names do not appear in it
    loop: Loop = names_of_loop["loop"]
    return loop


def _conversions(
    rules: Sequence[ColumnRule], names: Sequence[str], dialect: CsvDialect, *, records: bool
) -> _Conversions:
    has_nulls = dialect.nulls != {""}
    lines: list[str] = []
    sums: list[str] = []
    numbers = ""
    for number, (name, rule) in enumerate(zip(names, rules, strict=True)):
        kind, text = rule.kind, f"read{number}({name})"
        if kind is datetime:
            text = f"times{number}[{name}]"
        elif rule.is_plain:
            text = _FAST[kind].format(name)
            if kind in (float, int, Decimal):
                numbers += f"{{{name}}}"
            if kind in (float, Decimal) and not rule.optional:
                sums.append(name if kind is float else f"float({name})")
            elif kind in (float, Decimal):
                text = f"careful_{kind.__name__.lower()}({name})"
        if rule.optional:
            if records and kind is str:  # a quoted text is none of those that stand for None
                lines.append(f"   if {name} in nulls and quoted_null(record.text, {name}): raise ValueError")
            absent = f"{name} in nulls" if has_nulls else f"not {name}"
            lines.append(f"   {name} = None if {absent} else {text}")
        elif text != name:
            lines.append(f"   {name} = {text}")
        if text == f"int({name})":
            there = f"{name} is not None and " if rule.optional else ""
            lines.append(f"   if {there}not {LEAST} <= {name} <= {MOST}: raise ValueError")
    return _Conversions(lines, sums, numbers)
