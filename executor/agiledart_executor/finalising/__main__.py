"""Program `python -m agiledart_executor.finalising`: finalises the output files of an ended run.

It reads a `FinaliseRequest` from standard input and writes a `FinaliseResult` to standard output. A process of user code has named
the files. So this process has no access to the agent either, and a file that makes it crash does no harm to the agent.
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
    """Finalise the files of all sinks; return which of them failed and why."""
    wrong: list[str] = []
    again = ""
    for files in wanted.files:
        try:
            finalise_files(files.place, files.ends)
        except OutputFileChangedError as error:
            wrong.append(f"{files.place.step}: {error}")
        except OperationFailed as error:
            again = f"{files.place.step}: {error}"
    return FinaliseResult(tuple(wrong), again)


def main() -> None:
    """Answer the request on standard input on standard output; the working directory is the agent's state directory."""
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=FinaliseRequest)
    try:
        confine_file_finaliser(Path.cwd(), request.application, request.closed)
        result = finalise_all(request)
    except OperationFailed as error:
        result = FinaliseResult(again=str(error))
    sys.stdout.buffer.write(msgspec.msgpack.encode(result))


if __name__ == "__main__":
    main()
