"""Calls in a process of their own, with limits of time and memory: a call that hangs or crashes does not harm the caller."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from agiledart_kernel.errors import AgileDartError

_CHILD = "from agiledart.placement.isolation import serve; serve()"


class IsolatedFailure(AgileDartError):
    """Error: a call in a process of its own raised, did not end in time, or ended its process."""


def run_isolated(
    function: Callable[..., object], arguments: tuple[Any, ...], limit_s: float, memory_bytes: int
) -> object:
    """Return what a function of a module returns for these arguments; all of them must be picklable.

    Raises:
        IsolatedFailure: it failed; the message says how.
        AgileDartError: it raised this error.
    """
    request = pickle.dumps(sys.path) + pickle.dumps((function, arguments, memory_bytes))
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = child.communicate(request, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise IsolatedFailure(f"it did not end within {limit_s:.1f} s") from None
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    if not out:
        last = err.decode(errors="replace").strip().rpartition("\n")[2][:200]
        how = f"signal {-child.returncode}" if child.returncode < 0 else f"exit code {child.returncode}"
        raise IsolatedFailure(f"its process ended with {how}{': ' + last if last else ''}")
    kind, value = pickle.loads(out)
    if kind == "error":
        raise value
    if kind == "failure":
        raise IsolatedFailure(value)
    return value


def serve() -> None:
    """Answer the call on standard input; its prints go to standard error."""
    import resource

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.path[:] = pickle.load(sys.stdin.buffer)
    function: Callable[..., object]
    function, arguments, memory = pickle.load(sys.stdin.buffer)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        answer = pickle.dumps(("value", function(*arguments)))
    except AgileDartError as error:
        answer = pickle.dumps(("error", error))
    except MemoryError:
        answer = pickle.dumps(("failure", f"it needs more than {memory // 2**30} GB of memory"))
    except BaseException as error:  # noqa: BLE001  users' code may raise anything
        answer = pickle.dumps(("failure", f"it raised {type(error).__name__}: {error}"))
    answers.write(answer)
    answers.flush()
    os._exit(0)
