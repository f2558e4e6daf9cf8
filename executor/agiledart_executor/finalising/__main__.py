"""`python -m agiledart_executor.finalising`: a `FinaliseRequest` comes on standard input, a `FinaliseResult` goes to standard output.

What is to be finished was named by a process of users' code. So this one, too, has nothing of the agent's, and what it reads may
end it without harm to the agent.
"""

import sys
from pathlib import Path

import msgspec

from agiledart_connectors.files.seals import OutputFileChangedError
from agiledart_executor.finalising.file_finaliser import finalise_files
from agiledart_executor.finalising.finalise_messages import FinaliseRequest, FinaliseResult
from agiledart_executor.user_code.application_confinement import confine_file_finaliser
from agiledart_kernel.errors import OperationFailed


def finalise_all(wanted: FinaliseRequest) -> FinaliseResult:
    """Finish what can be; tell the rest."""
    wrong: list[str] = []
    again = ""
    for one in wanted.files:
        try:
            finalise_files(one.place, one.ends)
        except OutputFileChangedError as error:
            wrong.append(f"{one.place.step}: {error}")
        except OperationFailed as error:
            again = f"{one.place.step}: {error}"
    return FinaliseResult(tuple(wrong), again)


def main() -> None:
    """Standard input → standard output, from the agent's state directory."""
    wanted = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=FinaliseRequest)
    try:
        confine_file_finaliser(Path.cwd(), wanted.application, wanted.closed)
        found = finalise_all(wanted)
    except OperationFailed as error:
        found = FinaliseResult(again=str(error))
    sys.stdout.buffer.write(msgspec.msgpack.encode(found))


if __name__ == "__main__":
    main()
