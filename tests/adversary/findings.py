"""The thirty findings, by role, with their outcomes. A probe tries the deed, its lawful twin must work."""

from enum import Enum
from typing import Final, NamedTuple

import pytest


class Role(Enum):
    """Role of an attacker."""

    STRANGER = "stranger"
    LOCAL = "local user"
    CODE = "user's code"
    SUBMITTER = "submitter"
    AGENT = "agent"


class Outcome(Enum):
    """Outcome of a finding: impossible, limited, or written down as accepted."""

    MENDED = "mended"
    BOUNDED = "bounded"
    ACCEPTED = "accepted"
    OPEN = "open"


class Finding(NamedTuple):
    """A deed that was possible.

    Args:
        role: of the attacker.
        deed: the attack.
        outcome: after the mends.
    """

    role: Role
    deed: str
    outcome: Outcome


CODE, AGENT, SUBMITTER, STRANGER, LOCAL = Role.CODE, Role.AGENT, Role.SUBMITTER, Role.STRANGER, Role.LOCAL
MENDED, BOUNDED, ACCEPTED, OPEN = Outcome.MENDED, Outcome.BOUNDED, Outcome.ACCEPTED, Outcome.OPEN

FINDINGS: Final[dict[int, Finding]] = {
    1: Finding(CODE, "writes into the interpreter's folders what the next executor runs unconfined", MENDED),
    2: Finding(AGENT, "reads the authority's key through a link among the snapshots of a run", MENDED),
    3: Finding(AGENT, "names a run by a path: files are made and deleted outside the state directory", MENDED),
    4: Finding(AGENT, "reads and decides a run's register without being its voter", MENDED),
    5: Finding(AGENT, "makes hosts restart with a value that names itself the only voter", BOUNDED),
    6: Finding(CODE, "makes a folder tree so deep that the agent does not start any more", MENDED),
    7: Finding(CODE, "puts a pipe among its snapshots: the agent's thread of runs waits for ever", MENDED),
    8: Finding(CODE, "puts a sparse file among its snapshots: the agent reads gigabytes", MENDED),
    9: Finding(LOCAL, "sends megabytes to the control socket before the cookie", MENDED),
    10: Finding(CODE, "reads a token file in the home folder", BOUNDED),
    11: Finding(CODE, "opens the state directory to all local users by chmod", MENDED),
    12: Finding(CODE, "leaves a process behind that outlives its application", BOUNDED),
    13: Finding(CODE, "uses more memory than its bound, itself or by child processes", BOUNDED),
    14: Finding(CODE, "fills its log's folder so that the agent's figures fail or block", BOUNDED),
    15: Finding(CODE, "has a relay call a third party's address", MENDED),
    16: Finding(SUBMITTER, "reads what the former owner of an application's name left on a node", MENDED),
    17: Finding(AGENT, "takes all voter slots of a node for runs that do not exist", MENDED),
    18: Finding(AGENT, "taps and stops an application by a record with its own command as owner's", MENDED),
    19: Finding(CODE, "acts as root past the rules, where the agent runs as root", MENDED),
    20: Finding(CODE, "invents reasons of refusal that fill log and metrics", MENDED),
    21: Finding(STRANGER, "sends large or endless requests to an http source before its token", MENDED),
    22: Finding(AGENT, "fills the memory of other agents with records", BOUNDED),
    23: Finding(AGENT, "fills another node's store of fragments", BOUNDED),
    24: Finding(SUBMITTER, "fills an agent's memory with dry runs", BOUNDED),
    25: Finding(SUBMITTER, "stores more with a log than its quota", BOUNDED),
    26: Finding(CODE, "blocks an MQTT sink's queue with a row that cannot be published", MENDED),
    27: Finding(STRANGER, "keeps the places of the metrics server and of the data port", BOUNDED),
    28: Finding(AGENT, "books all circuits of a relay with several keys", BOUNDED),
    29: Finding(SUBMITTER, "enters the data port with the executor key of a former application", MENDED),
    30: Finding(LOCAL, "puts a link in the place of the state directory", MENDED),
}
"""Number → finding, numbered as in the adversary's report."""


def probe(number: int) -> pytest.MarkDecorator:
    """Mark a test that tries the deed of a finding and passes when it is refused or bounded."""
    return pytest.mark.probe(number)


def twin(number: int) -> pytest.MarkDecorator:
    """Mark a test that does by the same functions what is lawful, and passes when that works."""
    return pytest.mark.twin(number)
