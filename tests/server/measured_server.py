"""``python -m tests.server.measured_server DIRECTORY PORT``: a server that reports how it fared when it is terminated.

It prints one line when it is ready and one JSON object at its end: delays of its event loop in milliseconds, and its
memory in megabytes, in the first and the second half of its life.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

from opensesh.server.http_server import http_server
from opensesh.server.state import ServerOptions

_TICK_SECONDS = 0.01
_PAGE_BYTES = 4096


async def main(directory: str, port: int) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    delays: list[float] = []
    memory: list[float] = []
    async with http_server(ServerOptions(port=port, directory=directory, grace_seconds=1)) as url:
        print(url, flush=True)
        while not stopped.is_set():
            before = time.perf_counter()
            await asyncio.sleep(_TICK_SECONDS)
            delays.append((time.perf_counter() - before - _TICK_SECONDS) * 1000)
            if len(delays) % 100 == 0:
                memory.append(int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6)
    delays.sort()
    half = len(memory) // 2
    report = {
        "p50": delays[len(delays) // 2],
        "p99": delays[int(len(delays) * 0.99)],
        "max": delays[-1],
        "first_half_mb": max(memory[: half or 1], default=0),
        "second_half_mb": max(memory[half:], default=0),
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
