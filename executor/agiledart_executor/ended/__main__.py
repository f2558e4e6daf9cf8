"""`python -m agiledart_executor.ended`: a `FinishWanted` comes on standard input, a `FinishFound` goes to standard output.

What is to be finished was named by a process of users' code. So this one, too, has nothing of the agent's, and what it reads may
end it without harm to the agent.
"""

import sys
from pathlib import Path

import msgspec

from agiledart_executor.confining import confine_work
from agiledart_executor.connectors.files.seals import SpoiltFile
from agiledart_executor.ended.finishing import finish
from agiledart_executor.ended.messages import FinishFound, FinishWanted
from agiledart_kernel.errors import OperationFailed


def finished(wanted: FinishWanted) -> FinishFound:
    """Finish what can be; tell the rest."""
    wrong: list[str] = []
    again = ""
    for one in wanted.files:
        try:
            finish(one.place, one.ends)
        except SpoiltFile as error:
            wrong.append(f"{one.place.step}: {error}")
        except OperationFailed as error:
            again = f"{one.place.step}: {error}"
    return FinishFound(tuple(wrong), again)


def main() -> None:
    """Standard input → standard output, from the agent's state directory."""
    wanted = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=FinishWanted)
    try:
        confine_work(Path.cwd(), wanted.application, wanted.closed)
        found = finished(wanted)
    except OperationFailed as error:
        found = FinishFound(again=str(error))
    sys.stdout.buffer.write(msgspec.msgpack.encode(found))


if __name__ == "__main__":
    main()
