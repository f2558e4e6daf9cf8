"""Dialling of a link directly, or through a relay when no answer comes for a while. The first link that opens is used.

Source: the shuffle spec, section 12; a head start for the usual path, as between address families in RFC 8305.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_transport.link import Link

Dial = Callable[[], Coroutine[Any, Any, Link]]


async def dial_direct_or_relayed(
    direct: Dial, relayed: Dial, head_start: float, *, believes_refusal: bool = True
) -> Link:
    """Return the first link that opens.

    Args:
        head_start: seconds for which only the direct path is tried.
        believes_refusal: the address is known to be the peer's, so a refusal there says something about the peer.

    Raises:
        OSError, RemoteProtocolError: the error of the direct path. A peer whose machine refuses the connection, or that
            answers and refuses us, is not dialled through a relay, unless the refusal is not believed.
    """
    first = asyncio.ensure_future(direct())
    tasks = [first]
    try:
        await asyncio.wait(tasks, timeout=head_start)
        if first.done() and (first.exception() is None or (believes_refusal and not _is_silence(first))):
            return first.result()
        tasks.append(asyncio.ensure_future(relayed()))
        while waiting := [task for task in tasks if not task.done()]:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if opened := [task for task in tasks if task.done() and task.exception() is None]:
                for late in opened[1:]:
                    late.result().close("done")
                return opened[0].result()
        return first.result()
    finally:
        for task in tasks:
            task.cancel()


def _is_silence(task: "asyncio.Task[Link]") -> bool:
    error = task.exception()
    return isinstance(error, OSError) and not isinstance(error, ConnectionRefusedError | RemoteProtocolError)
