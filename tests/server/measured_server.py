"""``python -m tests.server.measured_server DIRECTORY PORT``: a server that prints its delays and memory at its end.

It prints one line when it is ready and one JSON object at its end: delays of its event loop in milliseconds, its CPU
time, and its memory in megabytes, in the first and the second half of its life. ``idle_p99`` is the delay of an event
loop with nothing to do, in another process meanwhile: what is due to other programs on the machine.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from opensesh.server.http_server import SWITCH_SECONDS, http_server
from opensesh.server.state import ServerOptions

_TICK_SECONDS = 0.01
_PAGE_BYTES = 4096
_WARM_UP_SECONDS = 10


async def measure_delays(stopped: asyncio.Event) -> tuple[list[float], list[float]]:
    """Return the delays of this loop, sorted, and the memory of this process, every second."""
    delays: list[float] = []
    memory: list[float] = []
    while not stopped.is_set():
        before = time.perf_counter()
        await asyncio.sleep(_TICK_SECONDS)
        delays.append((time.perf_counter() - before - _TICK_SECONDS) * 1000)
        if len(delays) % 100 == 0:
            memory.append(int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6)
    return sorted(delays), memory


def measure_idle_loop(pipe: Connection) -> None:
    """Measure the delays of a loop with nothing to do until the other end of the pipe asks for them or is closed."""

    async def measure() -> None:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_reader(pipe.fileno(), stopped.set)
        delays, _ = await measure_delays(stopped)
        with suppress(BrokenPipeError):  # the server was killed
            pipe.send(delays[int(len(delays) * 0.99)])

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    asyncio.run(measure())


async def main(directory: str, port: int) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    here, there = multiprocessing.Pipe()
    idle = multiprocessing.get_context("spawn").Process(target=measure_idle_loop, args=(there,), daemon=True)
    idle.start()
    sys.setswitchinterval(SWITCH_SECONDS)
    async with http_server(ServerOptions(port=port, directory=directory, grace_seconds=1)) as url:
        print(url, flush=True)
        cpu_before = time.process_time()
        delays, memory = await measure_delays(stopped)
    here.send(None)
    half = len(memory) // 2
    report = {
        "p50": delays[len(delays) // 2],
        "p99": delays[int(len(delays) * 0.99)],
        "max": delays[-1],
        "idle_p99": here.recv(),
        "cpu_seconds": time.process_time() - cpu_before,
        "first_half_mb": max(memory[_WARM_UP_SECONDS : half or 1], default=0),
        "second_half_mb": max(memory[half:], default=0),
        "load": os.getloadavg()[0],
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
