from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from opensesh.engine.opening import open_engine
from opensesh.project import resolve
from opensesh.records import Rule
from opensesh.sessions import Sessions
from opensesh.storage.disk import Disk
from opensesh.storage.json_tree.store import JsonTree
from opensesh.testing.scripted import ScriptedModel
from opensesh.workspace.repository import data_folder
from opensesh.workspace.revert import Reverts
from opensesh.workspace.snapshots import Snapshots

from ..workspace.project_setup import new_repository

Action = Literal["write a", "write b", "delete", "shell write", "nothing"]
Place = Literal["in git", "outside git"]

ACTIONS: tuple[Action, ...] = ("write a", "write b", "delete", "shell write", "nothing")
WRITTEN: dict[Action, str | None] = {"write a": "a", "write b": "b", "delete": None, "shell write": "s"}
PLACES = pytest.mark.parametrize("place", ["in git", "outside git"])
ALLOW = [Rule(permission="*", pattern="*", action="allow")]
UNREVERT = 3
# The operations are reverts to before the prompts 0, 1 and 2, and this one.


class ThreePrompts(NamedTuple):
    # A session of three prompts that each did one thing to ``z.txt``.

    reverts: Reverts
    session: str
    prompts: list[str]
    file: Path
    expected: list[str | None]
    # What the file is to hold after each operation, whatever the operations before; ``None``: it is not there.


@pytest.fixture(autouse=True)
def _unread_files_may_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_DISABLE_FILETIME_CHECK", "true")


def _content(file: Path) -> str | None:
    return file.read_text() if file.exists() else None


def _script(action: Action, file: Path) -> str:
    match action:
        case "write a" | "write b":
            tool, arguments = "write", {"filePath": str(file), "content": action[-1]}
        case "delete":
            patch = f"*** Begin Patch\n*** Delete File: {file.name}\n*** End Patch"
            tool, arguments = "apply_patch", {"patchText": patch}
        case "shell write":
            tool, arguments = "bash", {"command": f"printf s > {file}", "description": "d"}
        case "nothing":
            return "SAY nothing"
    return f"CALL {tool} {json.dumps(arguments)}\n---\nSAY done"


async def _run(folder: Path, store: JsonTree, actions: tuple[Action, ...]) -> tuple[str, list[str | None]]:
    file = folder / "z.txt"
    states = [_content(file)]
    sessions = Sessions(store, resolve(folder))
    session = sessions.create(title="T", permission=ALLOW).id
    for action in actions:
        model = "gpt-5" if action == "delete" else "it"
        async with open_engine(
            str(folder), store=store, scripts={model: ScriptedModel(_script(action, file))}
        ) as engine:
            await engine.run(session, "Go.", model=f"scripted/{model}")
        states.append(_content(file))
        assert states[-1] == WRITTEN.get(action, states[-2])
    return session, states


def _world(home: Path, place: Place, actions: tuple[Action, ...], start: str | None) -> ThreePrompts:
    folder = home / "work"
    if place == "in git":
        new_repository(folder)
    else:
        folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("mine")
    file = folder / "z.txt"
    if start is not None:
        file.write_text(start)
    store = JsonTree(home / "data" / "storage", disk=Disk(durable=False))
    session, states = asyncio.run(_run(folder, store, actions))
    sessions = Sessions(store, resolve(folder))
    snapshots = Snapshots(sessions.location, data=data_folder(store))
    prompts = [str(message.info["id"]) for message in sessions.messages(session) if message.info["role"] == "user"]
    return ThreePrompts(
        Reverts(sessions, snapshots, disk=Disk(durable=False)),
        session,
        prompts,
        file,
        [_expected(place, actions, states, point) for point in range(3)] + [states[-1]],
    )


def _expected(place: Place, actions: tuple[Action, ...], states: list[str | None], point: int) -> str | None:
    # What the file held before the prompt; outside of git, that is not known if a command changed it first.
    for number in range(point, len(actions)):
        if actions[number] == "shell write" and place == "outside git":
            return states[-1]
        if states[number + 1] != states[number]:
            return states[number]
    return states[-1]


def _all_orders() -> Iterator[int]:
    # A walk with every sequence of three operations in it: the de Bruijn sequence of order 3.
    operations = range(UNREVERT + 1)
    unused = set(product(operations, repeat=3))
    walk = [0, 0]
    while unused:
        # Greedy: the largest operation that makes a new sequence of three.
        step = next(step for step in reversed(operations) if (walk[-2], walk[-1], step) in unused)
        unused.discard((walk[-2], walk[-1], step))
        walk.append(step)
    return iter(walk)


def _check(prompts_made: ThreePrompts) -> None:
    done: list[int] = []
    for operation in _all_orders():
        done.append(operation)
        if operation == UNREVERT:
            result = prompts_made.reverts.unrevert(prompts_made.session)
        else:
            result = prompts_made.reverts.revert(prompts_made.session, prompts_made.prompts[operation])
        assert _content(prompts_made.file) == prompts_made.expected[operation], f"after {done[-4:]}: {result}"
        assert prompts_made.file.with_name("mine.txt").read_text() == "mine"


def test_the_walk_has_every_order_of_three() -> None:
    walk = list(_all_orders())
    assert set(zip(walk, walk[1:], walk[2:], strict=False)) == set(product(range(UNREVERT + 1), repeat=3))


@PLACES
@pytest.mark.parametrize(
    ("start", "actions"),
    [
        (None, ("write a", "write a", "nothing")),
        (None, ("write a", "shell write", "write b")),
        ("a", ("shell write", "delete", "write a")),
        ("b", ("delete", "write b", "shell write")),
    ],
)
def test_promise_6_no_order_of_reverts_loses_a_file(
    place: Place, start: str | None, actions: tuple[Action, ...], tmp_path: Path
) -> None:
    _check(_world(tmp_path / "home", place, actions, start))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@PLACES
def test_promise_6_no_order_of_reverts_loses_a_file_in_any_history(place: Place, tmp_path: Path) -> None:
    histories = list(product((None, "a"), product(ACTIONS, repeat=3)))
    # In git every operation takes two snapshots, so each run tries other histories there.
    chosen = histories if place == "outside git" else random.sample(histories, 12)
    for number, (start, actions) in enumerate(chosen):
        try:
            _check(_world(tmp_path / str(number), place, actions, start))
        except AssertionError as error:
            error.add_note(f"{start!r}, {actions}")
            raise
