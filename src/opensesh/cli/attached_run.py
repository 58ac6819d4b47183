"""``opensesh run --attach URL``: the prompt is answered by a server; this process only sends it and shows the events.

Any server with OpenCode's API will do. Permission requests are rejected, or approved with ``--yes``, as by a run
without a terminal. A terminal client that is attached to the same server can answer them first.
"""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import Namespace
from contextlib import suppress
from typing import Any

import httpx2
import msgspec

from .. import events
from ..bus import Envelope
from ..engine.loop import Outcome
from ..engine.prompt import file_part
from ..errors import NotFoundError, OpenseshError, UsageError
from ..events import Event
from ..records import Document, as_object, loads, object_at
from ..storage.protocol import StoredMessage
from . import output
from .attached_session import answer_of, client_options
from .prompt_run import EXIT_CODES, OUTCOME_NOTES, EventLines, NoView, RunView, write_json_line
from .responders import is_approved_by_yes, refusal_hint
from .run_screen import Screen
from .terminal import Stream

_NOT_WITH_ATTACH = {"store": "--store", "budget": "--budget", "share": "--share", "no_plugins": "--no-plugins"}
_IDLE_SECONDS = 5.0
"""How long to wait for the last events after the answer."""
_KNOWN_EVENTS = {
    str(kind.__struct_config__.tag): kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event) and kind.__struct_config__.tag is not None
}


def run(options: Namespace, text: str) -> int:
    """Run the prompt on the server; the exit code tells its outcome."""
    for name, option in _NOT_WITH_ATTACH.items():
        if getattr(options, name):
            raise UsageError(f"{option} cannot be combined with --attach: the server decides that")
    return asyncio.run(_AttachedRun(options, text).run())


class _AttachedRun:
    """One prompt on a server."""

    def __init__(self, options: Namespace, text: str) -> None:
        self._options = options
        self._text = text
        self._out = Stream(sys.stdout)
        directory = os.path.realpath(options.dir or os.getcwd())
        self._screen = Screen(self._out, Stream(sys.stderr), directory, quiet=options.quiet)
        as_text = options.format == "text" and not options.json
        self._view: RunView = self._screen if as_text else NoView() if options.json else EventLines(self._out)
        self._client = httpx2.AsyncClient(**client_options(options.attach, directory))
        self._connected = asyncio.Event()
        self._idle = asyncio.Event()
        self._session_id = ""

    async def run(self) -> int:
        async with self._client:
            self._session_id = await self._session()
            self._view.follow(self._session_id)
            async with asyncio.TaskGroup() as group:
                stream = group.create_task(self._watch())
                try:
                    await self._connected.wait()
                    outcome = await self._send()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_IDLE_SECONDS):
                            await self._idle.wait()
                except asyncio.CancelledError:
                    await self._client.post(f"/session/{self._session_id}/abort")
                    raise
                finally:
                    stream.cancel()
        options, info = self._options, outcome.message.info if outcome.message is not None else {}
        result: Document = {"type": "result", "sessionID": self._session_id, "outcome": outcome.kind}
        result |= {"text": outcome.text, "cost": info.get("cost"), "tokens": info.get("tokens")}
        if options.json:
            output.print_json(result)
        elif options.format == "json":
            write_json_line(self._out, result)
        else:
            self._screen.close()
            if note := OUTCOME_NOTES.get(outcome.kind):
                self._screen.error(note, 33)
            self._screen.gap()
            command = f"opensesh run --attach {options.attach} --session {self._session_id} ..."
            self._screen.note(f"continue with: {command}", 2, verbatim=True)
        return EXIT_CODES[outcome.kind]

    async def _request(self, method: str, path: str, body: Any = None) -> Any:
        try:
            response = await self._client.request(method, path, json=body)
        except httpx2.HTTPError as error:
            raise OpenseshError(f"{self._options.attach} does not answer: {error}") from None
        return answer_of(response, self._options.attach)

    async def _session(self) -> str:
        options = self._options
        if options.session:
            return str((await self._request("GET", f"/session/{options.session}"))["id"])
        if options.continue_last:
            listed: list[Document] = await self._request("GET", "/session?roots=true")
            sessions = [session for session in listed if not session["time"].get("archived")]
            if not sessions:
                raise NotFoundError("the server has no session of this directory to continue")
            return str(max(sessions, key=lambda session: session["time"]["updated"])["id"])
        body = {} if options.title is None else {"title": options.title.strip() or " ".join(self._text.split())[:50]}
        return str((await self._request("POST", "/session", body))["id"])

    async def _send(self) -> Outcome:
        options, path = self._options, f"/session/{self._session_id}"
        how: Document = {"agent": options.agent, "variant": options.variant}
        how = {name: value for name, value in how.items() if value is not None}
        attached = [file_part(name) for name in options.file]
        if options.command is not None:
            body = how | {"command": options.command, "arguments": self._text, "parts": attached}
            body |= {"model": options.model} if options.model else {}
            answer = await self._request("POST", f"{path}/command", body)
        else:
            provider_id, _, model_id = (options.model or "").partition("/")
            model = {"model": {"providerID": provider_id, "modelID": model_id}} if options.model else {}
            parts = [{"type": "text", "text": self._text}, *attached]
            answer = await self._request("POST", f"{path}/message", how | model | {"parts": parts})
        message = as_object(answer) or {}
        return _outcome_of(StoredMessage(object_at(message, "info"), list(message.get("parts") or ())))

    async def _watch(self) -> None:
        """Show the events of the server, and reply to its requests."""
        sequence = 0
        async with self._client.stream("GET", "/event") as response:
            async for line in response.aiter_lines():
                if not line.startswith("data:"):
                    continue
                document = as_object(loads(line[5:].encode())) or {}
                sequence += 1
                event = _event_of(document)
                if document.get("type") == "server.connected":
                    self._connected.set()
                elif event is not None:
                    self._view.show(Envelope(sequence, event))
                    await self._reply(event)
        raise OpenseshError(f"{self._options.attach} ended the event stream")

    async def _reply(self, event: Event) -> None:
        match event:
            case events.SessionIdle(session_id=self._session_id):
                self._idle.set()
            case events.PermissionAsked() if await self._is_ours(event.session_id):
                approve = self._options.yes and is_approved_by_yes(event)
                if not approve:
                    hint = refusal_hint(event)
                    request = f"{event.permission} {', '.join(event.patterns)}"
                    self._screen.error(f"! {request}: rejected{f'; {hint}' if hint else ''}", 33)
                with suppress(OpenseshError):  # another client was faster
                    reply = {"reply": "once" if approve else "reject"}
                    await self._request("POST", f"/permission/{event.id}/reply", reply)
            case events.QuestionAsked() if await self._is_ours(event.session_id):
                self._screen.error("! a question of the model was dismissed: there is no user to ask", 33)
                with suppress(OpenseshError):
                    await self._request("POST", f"/question/{event.id}/reject")
            case _:
                pass

    async def _is_ours(self, session_id: str) -> bool:
        """Return whether a session is that of this run, or one of its subagents at any depth."""
        while session_id and session_id != self._session_id:
            try:
                session = await self._request("GET", f"/session/{session_id}")
            except OpenseshError:  # it was removed meanwhile
                return False
            session_id = session.get("parentID", "")
        return bool(session_id)


def _outcome_of(message: StoredMessage) -> Outcome:
    """Return the outcome of a prompt, from the last message of its answer."""
    error = as_object(message.info.get("error"))
    if error is not None:
        return Outcome("aborted" if error.get("name") == "MessageAbortedError" else "failed", message, error)
    # After tool calls a session continues, unless one of them was refused.
    is_stopped = message.info.get("finish") == "tool-calls"
    has_failed_call = any(object_at(part, "state").get("status") == "error" for part in message.parts)
    return Outcome("blocked" if is_stopped and has_failed_call else "answered", message)


def _event_of(document: Document) -> Event | None:
    """Return the event of a server's JSON; ``None`` for one that is not known here."""
    kind = _KNOWN_EVENTS.get(str(document.get("type")))
    properties = object_at(document, "properties")
    try:
        return None if kind is None else msgspec.convert(properties | {"type": document["type"]}, kind)
    except msgspec.ValidationError:
        return None
