"""A server of the older protocol, written by hand, that can be told to fail: ``python antique.py FAULT...``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FAULTS = sys.argv[1:]


def tools() -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = [
        {"name": name, "inputSchema": {"type": "object", "properties": {}}}
        for name in ("hang", "die", "pid", "helper", "grow", "huge", "half")
    ]
    if "strange" in FAULTS:
        listed += [
            {"name": "no properties", "inputSchema": {"type": "object", "required": "all"}},
            {"name": "n" * 100, "inputSchema": {"type": "object"}},
            {"name": "no/properties", "inputSchema": {"type": "object", "additionalProperties": True}},
            {"name": "no schema", "description": 7, "inputSchema": "string", "outputSchema": []},
            {"inputSchema": {}},
        ]
    if Path("grown").exists():
        listed.append({"name": "grown", "inputSchema": {"type": "object"}})
    return listed


def call(name: str) -> dict[str, Any]:
    match name:
        case "hang":
            time.sleep(600)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "helper":
            left = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            return text(str(left.pid))
        case "grow":
            Path("grown").touch()
            say({"method": "notifications/tools/list_changed"})
            return text("grew")
        case "huge":
            return text("\n".join(f"line {number} of very many" for number in range(200_000)))
        case "half":
            return {"content": [], "structuredContent": {"half": [1, 2]}}
        case _:
            return text(str(os.getpid()))
    return text("")


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(message: dict[str, Any]) -> Any:
    match message["method"]:
        case "initialize":
            return {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "antique", "version": "1"},
            }
        case "tools/list":
            return {"tools": tools()}
        case "tools/call":
            return call(message["params"]["name"])
        case _:
            sys.exit(f"what is {message['method']}?")  # as some servers do at a greeting they do not know


def main() -> None:
    if "dead" in FAULTS:
        sys.exit("no licence found")
    if "slow" in FAULTS:
        time.sleep(600)
    if "deaf" in FAULTS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(f"started-{os.getpid()}").touch()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            say({"id": message["id"], "result": answer(message)})
    while "deaf" in FAULTS:
        time.sleep(1)


main()
