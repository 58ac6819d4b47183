"""The two implementations behind one interface, and the function that plays a scenario to either of them."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, assert_never

from msgspec.structs import replace

from opensesh.config import load
from opensesh.engine.engine import Engine
from opensesh.engine.opening import open_engine
from opensesh.engine.prompt import Prompt
from opensesh.engine.settings import Settings
from opensesh.engine.titles import is_provisional
from opensesh.models.request import Text, User
from opensesh.project import resolve
from opensesh.records import without_surrogates
from opensesh.sessions import Sessions
from opensesh.storage import open_store
from opensesh.storage.json_tree.store import JsonTree
from opensesh.testing.scripted import ReportUsage, ScriptedCall, ScriptedModel
from opensesh.workspace.revert import Reverts

from .comparison import whole
from .opencode import JSON_FILES, MODEL, OpenCode
from .scenarios import (
    WAITING,
    Answer,
    Ask,
    Command,
    Compact,
    Dismiss,
    Fork,
    Interject,
    Json,
    Refuse,
    Revert,
    Scenario,
    Shell,
    Stop,
    Unrevert,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from opensesh.engine.loop import Outcome
    from opensesh.models.request import Request
    from opensesh.models.stream_events import Usage
    from opensesh.storage.protocol import Store, StoredMessage
    from opensesh.testing.wire import WireServer

PATIENCE = 60.0


class EvenModel(ScriptedModel):
    """Plays prompts as scripts; every call costs the same, independent of the system prompt."""

    def next_call(self, request: Request, usage: Usage | None = None) -> ScriptedCall:
        return super().next_call(_whole(request), ReportUsage(input=700, output=50, cache_read=300, total=1050).usage)


def _whole(request: Request) -> Request:
    """Return a request whose prompts can be encoded, as OpenCode sends lone surrogates as they are; and a request for a
    summary without the conversation, so that its prompts are not played."""
    last = request.messages[-1]
    if not request.tools and isinstance(last, User) and "</conversation>" in str(last.content):
        return replace(request, messages=(User(content=(Text(text="Sum up."),)),))
    messages = [
        User(
            content=tuple(
                Text(text=without_surrogates(part.text)) if isinstance(part, Text) else part for part in turn.content
            )
        )
        if isinstance(turn, User)
        else turn
        for turn in request.messages
    ]
    return replace(request, messages=tuple(messages))


class Side(Protocol):
    """An implementation."""

    project: Path
    """The copy of the project."""
    data: Path
    """The data folder."""
    sessions: Sessions
    """The stored records."""

    async def create(self, title: str | None) -> str:
        """Create a session."""
        ...

    async def fork(self, session: str, before: str | None) -> str:
        """Fork a session."""
        ...

    async def compact(self, session: str) -> None:
        """Compact the session."""
        ...

    async def revert(self, session: str, message: str, part: str | None) -> None:
        """Revert."""
        ...

    async def unrevert(self, session: str) -> None:
        """Undo the revert."""
        ...

    async def shell(self, session: str, command: str) -> None:
        """Run a shell command of the user."""
        ...

    async def command(self, session: str, name: str, arguments: str) -> None:
        """Run a command of the configuration."""
        ...

    async def settle(self) -> None:
        """Wait until nothing more is written."""
        ...

    async def begin(self, session: str, parts: Sequence[Json], more: Json) -> None:
        """Send a prompt without waiting for the answer."""
        ...

    async def finish(self, session: str) -> None:
        """Wait until every prompt has its outcome."""
        ...

    async def abort(self, session: str) -> None:
        """Abort the run."""
        ...

    async def messages(self, session: str) -> Sequence[StoredMessage]:
        """Return the current messages."""
        ...

    async def status(self, session: str) -> str:
        """``idle``, ``busy`` or ``retry``."""
        ...

    async def asked(self) -> Json | None:
        """Return a pending permission request."""
        ...

    async def reply(self, request: str, reason: str | None) -> None:
        """Reject a permission request."""
        ...

    async def question(self) -> Json | None:
        """Return a pending question."""
        ...

    async def answer(self, request: str, answers: list[list[str]] | None) -> None:
        """Answer a question, or dismiss it."""
        ...


class Original:
    """Real OpenCode, over HTTP."""

    def __init__(self, opencode: OpenCode) -> None:
        self.opencode = opencode
        self.project = opencode.directory
        self.data = opencode.data
        self.config = (opencode.root / "config" / "opencode" / "opencode.json").read_text()
        store = open_store(str(opencode.data)) if opencode.version != JSON_FILES else JsonTree(opencode.storage)
        self.sessions = Sessions(store, resolve(self.project, store=store))
        self._keeps_retrying = opencode.version != JSON_FILES

    async def _do(self, method: str, path: str, body: Json | None = None) -> Any:
        return await asyncio.to_thread(self.opencode.request, method, path, body)

    async def create(self, title: str | None) -> str:
        return (await asyncio.to_thread(self.opencode.create, title))["id"]

    async def fork(self, session: str, before: str | None) -> str:
        return (await asyncio.to_thread(self.opencode.fork, session, before))["id"]

    async def compact(self, session: str) -> None:
        await asyncio.to_thread(self.opencode.summarize, session)

    async def revert(self, session: str, message: str, part: str | None) -> None:
        await self.settle()
        await asyncio.to_thread(self.opencode.revert, session, message, part)

    async def unrevert(self, session: str) -> None:
        await asyncio.to_thread(self.opencode.unrevert, session)

    async def shell(self, session: str, command: str) -> None:
        body = {"command": command, "agent": "build", "model": MODEL}
        await self._do("POST", f"/session/{session}/shell", body)

    async def command(self, session: str, name: str, arguments: str) -> None:
        body = {"command": name, "arguments": arguments, "model": f"{MODEL['providerID']}/{MODEL['modelID']}"}
        await self._do("POST", f"/session/{session}/command", body)

    async def settle(self) -> None:
        await asyncio.to_thread(self.opencode.settle)

    async def begin(self, session: str, parts: Sequence[Json], more: Json) -> None:
        seen = {message.info["id"] for message in self.sessions.messages(session)}
        await asyncio.to_thread(self.opencode.prompt_async, session, parts, **more)
        # It answers before the prompt is stored.
        await until(lambda: self._has_more_than(seen, session))

    async def _has_more_than(self, seen: set[str], session: str) -> bool:
        return any(message.info["id"] not in seen for message in await self.messages(session))

    async def finish(self, session: str) -> None:
        await until(lambda: self._is_at_rest(session))

    async def _is_at_rest(self, session: str) -> bool:
        status = (await self._do("GET", "/session/status")).get(session, {"type": "idle"})
        if self._keeps_retrying and status.get("attempt", 0) > 1:
            # Later versions repeat requests that 1.1 gives up, and the script fails each time.
            await self.abort(session)
        if status["type"] != "idle":
            return False
        last = (await self.messages(session))[-1].info
        return last["role"] == "assistant" and ("completed" in last["time"] or "error" in last)

    async def abort(self, session: str) -> None:
        if self._keeps_retrying:
            await asyncio.to_thread(self.opencode.abort, session)
            return
        expected = self.opencode.ends(session) + 2
        await asyncio.to_thread(self.opencode.abort, session)
        await until(lambda: asyncio.to_thread(lambda: self.opencode.ends(session) >= expected))

    async def messages(self, session: str) -> Sequence[StoredMessage]:
        return await asyncio.to_thread(self.sessions.messages, session, report=lambda damage: None)

    async def status(self, session: str) -> str:
        return (await self._do("GET", "/session/status")).get(session, {}).get("type", "idle")

    async def asked(self) -> Json | None:
        return next(iter(await self._do("GET", "/permission")), None)

    async def reply(self, request: str, reason: str | None) -> None:
        await self._do("POST", f"/permission/{request}/reply", {"reply": "reject", "message": reason})

    async def question(self) -> Json | None:
        return next(iter(await self._do("GET", "/question")), None)

    async def answer(self, request: str, answers: list[list[str]] | None) -> None:
        if answers is None:
            await self._do("POST", f"/question/{request}/reject")
        else:
            await self._do("POST", f"/question/{request}/reply", {"answers": answers})


class Ours:
    """opensesh's engine in this process, with the model over HTTP. Use it with ``async with``."""

    def __init__(self, root: Path, project: Path, config: str, *, store: Store | None = None) -> None:
        """``store`` is the JSON tree unless another one is given."""
        self.project = project
        self.data = root / "data" / "opencode"
        environment = {f"XDG_{name.upper()}_HOME": str(root / name) for name in ("data", "config", "cache", "state")}
        folder = root / "config" / "opencode"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "opencode.json").write_text(config)
        path = resolve(project, store=store)
        loaded = load(path.directory, path.sandbox, home=root / "home", environ=environment)
        # A step that is aborted, or fails, before its snapshot is taken has none; OpenCode's steps begin with theirs.
        settings = Settings(snapshot_start_seconds=60)
        tree = store or JsonTree(self.data / "storage")
        self.engine: Engine = open_engine(str(project), store=tree, config=loaded, settings=settings)
        self._outcomes: dict[str, asyncio.Future[Outcome]] = {}

    async def __aenter__(self) -> Ours:
        await self.engine.__aenter__()
        self.sessions = self.engine.sessions
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.engine.__aexit__(*exc)

    async def create(self, title: str | None) -> str:
        return (await self.engine.create(title=title)).id

    async def fork(self, session: str, before: str | None) -> str:
        return (await asyncio.to_thread(self.sessions.fork, session, before=before)).id

    async def compact(self, session: str) -> None:
        await asyncio.wait_for(await self.engine.compact(session), PATIENCE)

    async def revert(self, session: str, message: str, part: str | None) -> None:
        await asyncio.to_thread(self._reverts.revert, session, message, part)

    async def unrevert(self, session: str) -> None:
        await asyncio.to_thread(self._reverts.unrevert, session)

    async def shell(self, session: str, command: str) -> None:
        model = f"{MODEL['providerID']}/{MODEL['modelID']}"
        await asyncio.wait_for(self.engine.shell(session, command, agent="build", model=model), PATIENCE)

    async def command(self, session: str, name: str, arguments: str) -> None:
        model = f"{MODEL['providerID']}/{MODEL['modelID']}"
        await asyncio.wait_for(await self.engine.command(session, name, arguments, model=model), PATIENCE)

    async def settle(self) -> None:
        """Nothing is pending once a prompt has its outcome."""

    @property
    def _reverts(self) -> Reverts:
        return Reverts(self.sessions, self.engine.components.snapshots, publish=self.engine.components.writer.publish)

    async def begin(self, session: str, parts: Sequence[Json], more: Json) -> None:
        model = more.get("model", MODEL)
        options = {name: value for name, value in more.items() if name != "model"}
        prompt = Prompt(parts=tuple(parts), model=f"{model['providerID']}/{model['modelID']}", **options)
        self._outcomes[session] = await self.engine.submit(session, prompt)

    async def finish(self, session: str) -> None:
        await asyncio.wait_for(asyncio.shield(self._outcomes[session]), PATIENCE)

    async def abort(self, session: str) -> None:
        self.engine.abort(session)

    async def messages(self, session: str) -> Sequence[StoredMessage]:
        return await asyncio.to_thread(self.sessions.messages, session)

    async def status(self, session: str) -> str:
        return self.engine.status().get(session, {}).get("type", "idle")

    async def asked(self) -> Json | None:
        return next(iter(self.engine.permissions()), None)

    async def reply(self, request: str, reason: str | None) -> None:
        self.engine.reply_permission(request, "reject", reason)

    async def question(self) -> Json | None:
        return next(iter(self.engine.questions()), None)

    async def answer(self, request: str, answers: list[list[str]] | None) -> None:
        if answers is None:
            self.engine.reject_question(request)
        else:
            self.engine.reply_question(request, answers)


class Played(NamedTuple):
    """The result of a scenario: the sessions, and the requests to the model."""

    side: Side
    sessions: tuple[str, ...]
    requests: Sequence[Json]


async def play(side: Side, scenario: Scenario, wire: WireServer) -> Played:
    """Play a scenario to one side; retry if OpenCode loses it, as it does occasionally on a busy machine."""
    try:
        return await _play(side, scenario, wire)
    except TimeoutError:
        if not isinstance(side, Original) or side.opencode.status():
            raise
    shutil.rmtree(side.project / folder_of(scenario))
    return await _play(side, scenario, wire)


async def _play(side: Side, scenario: Scenario, wire: WireServer) -> Played:
    folder = side.project / folder_of(scenario)
    folder.mkdir(exist_ok=True)
    _lay_out(folder, scenario.files)
    seen = len(wire.conversation)
    sessions = [await side.create(scenario.name if scenario.titled else None)]
    for act in scenario.acts:
        match act:
            case Fork(before=before):
                names = [message.info["id"] for message in await side.messages(sessions[-1])]
                sessions.append(await side.fork(sessions[-1], None if before is None else names[before]))
            case Compact():
                await side.compact(sessions[-1])
            case Revert(message=number, part=part):
                message = (await side.messages(sessions[-1]))[number]
                name = None if part is None else message.parts[part]["id"]
                await side.revert(sessions[-1], message.info["id"], name)
            case Unrevert():
                await side.unrevert(sessions[-1])
            case Shell(command=command):
                await side.shell(sessions[-1], command)
            case Command(name=name, arguments=arguments):
                await side.command(sessions[-1], name, arguments)
            case _:
                await _say(side, sessions[-1], act, folder)
    if scenario.files or scenario.shows:
        await side.settle()
    if not scenario.titled:
        await until(lambda: _has_title(side, sessions[0]))
    asked = [request.body for request in wire.conversation[seen:] if not _sums_up(request.body)]
    return Played(side, tuple(sessions), [outline(body) for body in asked])


def _sums_up(body: Json) -> bool:
    """Whether this is a request for a summary, which each side words differently and which is not compared."""
    text = str(body["messages"][-1]["content"])
    return not body.get("tools") and ("</conversation>" in text or "continuing our conversation" in text)


def outline(body: Json) -> Json:
    """Return the compared content of a request: without system prompts and tool descriptions."""
    text = [message for message in body["messages"] if message["role"] != "system"]
    tools = [tool.get("function", tool)["name"] for tool in body.get("tools", ())]
    settings = {name: value for name, value in sorted(body.items()) if name not in ("messages", "tools", "system")}
    return {"settings": settings, "messages": text, "tools": tools}


async def _say(side: Side, session: str, act: Ask | Stop | Interject | Refuse | Dismiss | Answer, at: Path) -> None:
    parts = (act.parts if isinstance(act, Ask) else ()) or ()
    more = act.more if isinstance(act, Ask) else {"agent": "careful"} if isinstance(act, Refuse) else {}
    arguments = [{"type": "text", "text": act.script}] if act.script else []
    (at.parent / ".git" / "go").unlink(missing_ok=True)
    await side.begin(session, filled([*arguments, *parts], str(at)), dict(more))
    match act:
        case Ask(script=script):
            if WAITING in script:
                await until(lambda: _happens(side, session, "tool"))
                (at.parent / ".git" / "go").touch()
        case Stop(once=once):
            await until(lambda: _happens(side, session, once))
            await side.abort(session)
        case Interject(also=also):
            await until(lambda: _happens(side, session, "tool"))
            await side.begin(session, [{"type": "text", "text": also}], {})
            # Not a file of the project: OpenCode would count it as a change of the session, opensesh would not.
            (at.parent / ".git" / "go").touch()
        case Refuse(reason=reason):
            await side.reply((await _waiting(side.asked))["id"], reason)
        case Dismiss():
            await side.answer((await _waiting(side.question))["id"], None)
        case Answer(answers=answers):
            await side.answer((await _waiting(side.question))["id"], [list(item) for item in answers])
        case _:
            assert_never(act)
    await side.finish(session)


async def _has_title(side: Side, session: str) -> bool:
    result = whole(lambda: side.sessions.get(session))
    return not result.has_default_title and not is_provisional(result)


async def _happens(side: Side, session: str, what: str) -> bool:
    if what == "retry":
        return await side.status(session) == "retry"
    newest = (await side.messages(session))[-1]
    parts = newest.parts if newest.info["role"] == "assistant" else []
    if what in ("text", "reasoning"):
        # Later versions store a text when it begins and when it ends.
        begun = isinstance(side, Original) and side.opencode.version != JSON_FILES
        return any(part["type"] == what and (begun or part["text"].strip()) for part in parts)
    states = [part["state"] for part in parts if part["type"] == "tool" and part["state"]["status"] == "running"]
    return any(what == "tool" or state.get("metadata", {}).get("output") for state in states)


async def _waiting(look: Callable[[], Awaitable[Json | None]]) -> Json:
    result: list[Json] = []

    async def is_there() -> bool:
        request = await look()
        result.extend([request] if request else [])
        return bool(result)

    await until(is_there)
    return result[0]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for ``condition``, with a generous timeout."""
    deadline = time.monotonic() + PATIENCE
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing happened within {PATIENCE:g} s")
        await asyncio.sleep(0.02)


def folder_of(scenario: Scenario) -> str:
    """Return the folder of the scenario's files in the project."""
    return scenario.name.replace(",", "").replace(" ", "-")


def filled(parts: Sequence[Json], at: str) -> list[Json]:
    """Return ``parts`` with ``{at}`` replaced."""
    return json.loads(json.dumps(list(parts)).replace("{at}", at))


def _lay_out(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
