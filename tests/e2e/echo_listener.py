"""A process that serves links and echoes frames; on each line of stdin it prints its figures as JSON."""

import asyncio
import gc
import json
import os
import resource
import sys
import time
from collections import Counter
from pathlib import Path

import uvloop

from agiledart_kernel.frames import Hello
from agiledart_transport.certificates import make_credentials
from agiledart_transport.connecting import LinkHandler
from agiledart_transport.listener import serve
from agiledart_transport.local_peer_verifier import LocalPeerVerifier
from agiledart_transport.tls_contexts import server_context
from tests.keys import Authority, key_of


def rss_kib() -> int:
    """Resident memory of this process, now."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() // 1024


async def main(name: str, timeout: float) -> None:
    now = int(time.time())
    net = Authority(now=now)
    refused: Counter[str] = Counter()
    ended: Counter[str] = Counter()

    def on_refused(reason: str, remote: str) -> None:
        refused[reason] += 1

    def on_closed(link: object, reason: str) -> None:
        ended[reason] += 1

    listener = await serve(
        "127.0.0.1",
        0,
        context=server_context(make_credentials(key_of(name), net.network, now)),
        hello=lambda peer: Hello(chain=net.member(name), name=name),
        verifier=LocalPeerVerifier(net.network, time.time),
        services=("overlay",),
        on_link=lambda link: LinkHandler(lambda link, kind, body: link.send(kind, body), on_closed),
        on_refused=on_refused,
        timeout=timeout,
    )
    print(listener.address, flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        gc.collect()
        figures = {
            "rss_kib": rss_kib(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "tasks": len(asyncio.all_tasks()),
            "objects": len(gc.get_objects()),
            "links": listener.links,
            "unverified": listener.unverified,
            "refused": refused,
            "ended": ended,
        }
        print(json.dumps(figures), flush=True)
    await listener.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], float(sys.argv[2])))
