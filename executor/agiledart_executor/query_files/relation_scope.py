"""`RelationScope`: streams that statements may name, and views."""

import re
from difflib import get_close_matches

from agiledart_executor.query_files.application_code import Relation, is_identifier
from agiledart_executor.query_files.text_place import TextPlace


class RelationScope:
    """Streams by name, in the order of their definition.

    Args:
        outer: scope of the statement around this one, whose streams may be named, too.
    """

    def __init__(self, outer: "RelationScope | None" = None) -> None:
        self._outer = outer
        self._relations: dict[str, Relation] = {}
        self._used: set[str] = set()
        self._parameters: set[str] = set()

    def reserve(self, name: str, place: TextPlace) -> None:
        """Keep a name for a parameter that is no stream, in the scopes around, too; refuse a name that is taken."""
        self.check_new(name, place)
        self._parameters.add(name)
        if self._outer is not None:
            self._outer.reserve(name, place)

    def reserve_like(self, wanted: str, place: TextPlace) -> str:
        """Keep the first free name like this for a parameter, and return it."""
        base, number = re.sub(r"[^A-Za-z0-9]", "_", wanted), 1
        name = base
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.reserve(name, place)
        return name

    @property
    def taken(self) -> set[str]:
        """Return the names of streams and parameters here and in the scopes around."""
        outer: set[str] = set() if self._outer is None else self._outer.taken
        return {*self._relations, *self._parameters, *outer}

    def define(self, name: str, relation: Relation, place: TextPlace) -> None:
        """Add a stream; refuse a name that stands twice."""
        self.check_new(name, place)
        self._relations[name] = relation

    def check_new(self, name: str, place: TextPlace) -> None:
        """Refuse a name that is taken, or cannot be one."""
        if not is_identifier(name):
            place.refuse(
                f"{name!r} cannot name a stream: letters, digits and _, beginning with a letter, no reserved word"
            )
        if name in self._relations or name in self._parameters:
            place.refuse(f"there is already a stream {name}")

    def named(self, name: str, place: TextPlace) -> Relation:
        """Return a stream; refuse an unknown name."""
        relation = self._relations.get(name)
        if relation is None and self._outer is not None and name in self._outer.names:
            return self._outer.named(name, place)
        if relation is None:
            close = get_close_matches(name, self.names, 1)
            meant = f" Did you mean {close[0]}?" if close else ""
            place.refuse(f"there is no stream {name}.{meant} There are {', '.join(self.names) or 'none yet'}")
        self._used.add(name)
        return relation

    @property
    def names(self) -> list[str]:
        """Return the names of all streams that may be named."""
        return [*self._relations, *(self._outer.names if self._outer is not None else ())]

    @property
    def unused(self) -> list[str]:
        """Return the names of streams that nothing reads."""
        return [name for name in self._relations if name not in self._used]
