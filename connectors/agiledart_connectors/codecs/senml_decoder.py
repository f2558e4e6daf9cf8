"""Format `senml`: packs of measurements (RFC 8428). Base values are resolved, so that each record stands alone, and fills a
row by the names `name`, `unit`, `time` and `value` (also `string`, `boolean`, `data`, `sum`), or the RFC's `n`, `u`, `t`, `v`.
"""

import time
from typing import Any, Final

import msgspec

from agiledart_connectors.codecs.json_decoder import JsonDecoder
from agiledart_connectors.codecs.malformed_examples import FORM, TYPE, MalformedError, bounded_repr

_NAMES: Final = {"n": "name", "u": "unit", "v": "value", "vs": "string", "vb": "boolean", "vd": "data", "s": "sum"}

_RELATIVE: Final = 2**28
"""Times below it count from now (section 4.5.3)."""


class SenmlDecoder:
    """Packs → rows.

    Args:
        row_type: of the rows.
        clock: seconds since 1970, for times relative to now.
    """

    def __init__(self, row_type: Any, clock: Any = time.time) -> None:
        self._rows = JsonDecoder(row_type)
        self._clock = clock

    def lines(self, data: bytes, wall_ns: int) -> list[Any] | None:
        return None

    def rows(self, payload: bytes, wall_ns: int) -> list[Any]:
        try:
            pack = msgspec.json.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise MalformedError(FORM, f"is no JSON ({error}): {bounded_repr(payload)}") from None
        if not isinstance(pack, list) or not all(isinstance(entry, dict) for entry in pack):
            raise MalformedError(FORM, f"is no SenML pack, which is an array of objects: {bounded_repr(payload)}")
        rows: list[Any] = []
        for record in self._resolved(pack):
            rows += self._rows.rows(msgspec.json.encode(record), wall_ns)
        return rows

    def _resolved(self, pack: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The records with their base values (section 4.6)."""
        base: dict[str, Any] = {}
        records = []
        for given in pack:
            if unknown := [name for name in given if name.endswith("_")]:
                raise MalformedError(FORM, f"{unknown[0]}: a label that must be understood, and is not")
            base |= {name: value for name, value in given.items() if name.startswith("b")}
            record = {name: value for name, value in given.items() if not name.startswith("b")}
            try:
                self._add_base(base, record)
            except TypeError:
                raise MalformedError(TYPE, f"base values do not go with {bounded_repr(given)}") from None
            if len(record) > 2 or "v" in record:
                records.append(record | {_NAMES[name]: value for name, value in record.items() if name in _NAMES})
        return records

    def _add_base(self, base: dict[str, Any], record: dict[str, Any]) -> None:
        record["n"] = base.get("bn", "") + record.get("n", "")
        at = base.get("bt", 0) + record.get("t", 0)
        record["t"] = record["time"] = at + self._clock() if at < _RELATIVE else at
        if "bu" in base:
            record.setdefault("u", base["bu"])
        if "v" in record or ("bv" in base and not {"vs", "vb", "vd"} & set(record)):
            record["v"] = base.get("bv", 0) + record.get("v", 0)
        if "s" in record or "bs" in base:
            record["s"] = base.get("bs", 0) + record.get("s", 0)
