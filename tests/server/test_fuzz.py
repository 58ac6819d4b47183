from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from opensesh.records import as_object

from .serving import Client, make_project, serving

SKIPPED = (
    "/event",
    "/global/event",
    "/history/events",
    "/tui/control/next",
    "/pty",
    "/global/dispose",
    "/instance/dispose",
)
"""Streams, waits, programs of their own, and what ends everything."""
ODD = [
    "",
    "x",
    "ses_x",
    "msg_x",
    "../../etc/passwd",
    "/etc/passwd",
    "\u202e",
    "a" * 5000,
    "null",
    "-1",
    "%00",
    "true",
    "\ud800",
]


ANYTHING: list[Any] = [*ODD, None, 5, -1, 1e300, True, [], {}, [{}], {"type": "text"}]


class Generator:
    """Random requests from the documentation of the server: some as declared, most of them not."""

    def __init__(self, document: dict[str, Any], known: dict[str, str], seed: int) -> None:
        self._random = random.Random(seed)
        self._schemas = document["components"]["schemas"]
        self._known = known
        self.operations = [
            (method, path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if not path.startswith(SKIPPED)
        ]

    def request(self) -> tuple[str, str, dict[str, str], Any]:
        method, path, operation = self._random.choice(self.operations)
        query: dict[str, str] = {}
        for parameter in operation["parameters"]:
            value = str(self._value(parameter["schema"], parameter["name"], 0)).encode(errors="replace").decode()
            if parameter["in"] == "path":
                path = path.replace(f"{{{parameter['name']}}}", httpx2.QueryParams({"v": value}).__str__()[2:] or "x")
            elif parameter["name"] != "directory" and self._random.random() < 0.6:
                query[parameter["name"]] = value
        body = None
        if "requestBody" in operation:
            body = self._value(operation["requestBody"]["content"]["application/json"]["schema"], "", 0)
        return method.upper(), path, query, body

    def _value(self, schema: Any, name: str, depth: int) -> Any:
        chance = self._random.random()
        if chance < 0.08 or depth > 5:
            return self._random.choice(ANYTHING)
        if name in self._known and chance < 0.75:
            return self._known[name]
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        if "anyOf" in schema:
            return self._value(self._random.choice(schema["anyOf"]), name, depth + 1)
        choices = schema.get("enum") or ([schema["const"]] if "const" in schema else self._choices(schema, depth))
        return self._random.choice(choices)

    def _choices(self, schema: Any, depth: int) -> list[Any]:
        kind = schema.get("type")
        if kind == "object":
            members, required = schema.get("properties", {}), schema.get("required", [])
            chosen = [one for one in members if self._random.random() < (0.97 if one in required else 0.5)]
            return [{one: self._value(members[one], one, depth + 1) for one in chosen}]
        if kind == "array":
            count = self._random.randrange(3)
            return [[self._value(schema.get("items", {}), "", depth + 1) for _ in range(count)]]
        numbers = {"integer": [0, 1, 7, -1, 2**60], "number": [0, 1, 0.5, -3, 1e18], "boolean": [True, False]}
        return numbers.get(kind, [None] if kind == "null" else ODD)


async def fuzz(client: Client, seed: int, count: int) -> None:
    session_id = await client.create(title="Fuzzed")
    answer = await client.prompt(session_id, "SAY hello")
    known = {"sessionID": session_id, "messageID": answer["info"]["id"], "partID": answer["parts"][0]["id"]}
    known |= {"providerID": "scripted", "modelID": "prompt", "name": "x", "path": "README.md"}
    generator = Generator(await client.get("/doc"), known, seed)
    successful = 0
    for _ in range(count):
        method, path, query, body = generator.request()
        members = as_object(body)
        if members is not None and {"command", "startCommand"} & members.keys():
            body = members | {"command": "true", "startCommand": "true"}
        sent: Any = (
            {} if body is None else {"content": json.dumps(body), "headers": {"content-type": "application/json"}}
        )
        response = await client.http.request(method, path, params=query, timeout=60, **sent)
        shown = (method, path, query, body, response.status_code, response.text[:300])
        assert response.status_code < 500 or response.status_code == 502, shown
        assert "text/html" not in response.headers.get("content-type", ""), shown
        assert "Traceback" not in response.text, shown
        assert "root:" not in response.text, shown
        successful += response.status_code < 300
    assert successful > count / 4, "most requests are about nothing"


@pytest.mark.parametrize("seed", [1, 2])
async def test_random_requests_get_an_answer_and_reach_nothing_outside(tmp_path: Path, seed: int) -> None:
    async with serving(make_project(tmp_path / "p")) as client:
        await fuzz(client, seed, 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p"]


async def test_half_a_character_is_refused_where_it_cannot_be(tmp_path: Path) -> None:
    async with serving(make_project(tmp_path / "p")) as client:
        session_id = await client.create(title="One")
        known = {"sessionID": session_id, "messageID": "msg_x", "partID": "prt_x", "name": "x", "providerID": "x"}
        generator = Generator(await client.get("/doc"), known, 0)
        headers = {"content-type": "application/json"}
        for method, path, operation in generator.operations:
            if "requestBody" in operation:
                address = re.sub(r"\{(\w+)\}", lambda name: known.get(name[1], "x"), path)
                response = await client.http.request(method.upper(), address, content=r'"\ud800"', headers=headers)
                assert 400 <= response.status_code < 500, (path, response.text)
        body = r'{"directory": "\ud800"}'
        response = await client.http.post("/experimental/worktree/reset", content=body, headers=headers)
        assert (response.status_code, response.json()["name"]) == (400, "BadRequest")


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_twenty_thousand_random_requests_get_an_answer(tmp_path: Path) -> None:
    async with serving(make_project(tmp_path / "p")) as client:
        for seed in range(40):
            await fuzz(client, seed + 100, 500)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p"]
