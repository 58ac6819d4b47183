"""From what a caller hands in to a stored prompt: the user message and its parts.

Files are read here, as if the model had asked for them, so that it sees what the user saw. What is added that the
user did not type is marked synthetic.
"""

from __future__ import annotations

import asyncio
import base64
import os
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from .. import ids
from ..config import mentions
from ..errors import OpenseshError, RecordError, UsageError
from ..records import (
    EXTENSION_KEY,
    AgentPart,
    Document,
    FilePart,
    MessageTime,
    ModelRef,
    TextPart,
    UserMessage,
    dumps_compact,
    read_part,
)
from ..storage.protocol import StoredMessage
from .modes import reminders
from .shell import is_by_user
from .system_prompt import day

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ..models.model import Model
    from ..project import ProjectLocation
    from ..records import FileSource, Part, Session
    from .components import Runtime
    from .session_history import History

    Reader = Callable[[str, int | None, int | None], Awaitable[tuple[str, tuple[dict[str, Any], ...]]]]


_NEEDED = {"text": "text", "file": "url", "agent": "name", "subtask": "prompt"}
"""What each kind of part that a caller hands in must have."""


class Prompt(Struct, frozen=True, kw_only=True):
    """What a caller asks for."""

    parts: tuple[Document, ...]
    """Text, file, agent and subtask parts, as OpenCode's API takes them; ids are optional."""
    agent: str | None = None
    model: str | None = None
    """``provider/model``."""
    variant: str | None = None
    system: str | None = None
    format: dict[str, Any] | None = None
    tools: dict[str, bool] | None = None
    message_id: str | None = None
    steering: bool = False
    """It arrives while the model is at work."""


class PromptOptions(TypedDict, total=False):
    """How a prompt of words is asked: the fields of :class:`Prompt` that are not the prompt itself, each by name."""

    agent: str | None
    model: str | None
    variant: str | None
    system: str | None
    format: dict[str, Any] | None
    tools: dict[str, bool] | None
    message_id: str | None


def text_prompt(text: str, files: Sequence[str] = (), **more: Unpack[PromptOptions]) -> Prompt:
    """A prompt of words, and files by path."""
    attached = [file_part(path) for path in files]
    return Prompt(parts=({"type": "text", "text": text}, *attached), **more)


def file_part(path: str) -> Document:
    """A file on this machine, as a part to hand in."""
    import mimetypes
    from urllib.request import pathname2url

    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.exists(path):
        raise UsageError(f"there is no file {path} to attach")
    guessed = mimetypes.guess_type(path)[0] or "text/plain"
    mime = guessed if guessed.startswith("image/") or guessed == "application/pdf" else "text/plain"
    if os.path.isdir(path):
        mime = "application/x-directory"
    return {"type": "file", "mime": mime, "filename": os.path.basename(path), "url": f"file://{pathname2url(path)}"}


def mentioned_parts(text: str, runtime: Runtime, *, said: str | None = None) -> tuple[Document, ...]:
    """``text`` and the files and agents it mentions with ``@``, as parts to hand in. ``said`` is what the user said of
    it, if that is not all: what a program printed, or came through a pipe, has no file read."""
    parts: list[Document] = [{"type": "text", "text": text}]
    for name in mentions(text if said is None else said):
        path = _mentioned_file(name, runtime.place)
        if path is not None:
            parts.append(file_part(path) | {"filename": name})
        elif name in runtime.agents:
            parts.append({"type": "agent", "name": name})
    return tuple(parts)


def _mentioned_file(name: str, place: ProjectLocation) -> str | None:
    """The file that is meant: seen from the root of the project, as OpenCode has it, or from where the user is."""
    path = os.path.expanduser(name) if name.startswith("~/") else name
    candidates = (os.path.join(folder, path) for folder in (place.sandbox, place.directory))
    return next((each for each in candidates if os.path.exists(each)), None)


def validate_prompt_part(part: Document) -> Part:
    """A part that a caller hands in; :class:`UsageError` for what no prompt is made of, or what lacks the one thing it
    is about."""
    kind = str(part.get("type"))
    if kind not in _NEEDED:
        raise UsageError(f"a prompt is made of {', '.join(_NEEDED)} parts, not of {kind!r}")
    if not isinstance(part.get(_NEEDED[kind]), str):
        raise UsageError(f"a part of a prompt of type {kind} needs {_NEEDED[kind]!r}, as text")
    try:
        return read_part({"id": "", "sessionID": "", "messageID": ""} | part)
    except RecordError as error:
        raise UsageError(f"a part of a prompt of type {kind} cannot be read: {error.place}: {error.reason}") from None


class PromptWriter:
    """Writes the prompts of one session."""

    def __init__(self, runtime: Runtime, session: Session, history: History, read: Reader) -> None:
        self._runtime = runtime
        self._session = session
        self._history = history
        self._read = read

    async def compose(self, prompt: Prompt) -> StoredMessage:
        """The prompt as it is to be stored. What cannot be asked for raises what says so; nothing is written."""
        agent = self._runtime.agent(prompt.agent)
        model = self._model(prompt, agent.model)
        message_id = ids.ascending("msg", prompt.message_id)
        if prompt.message_id and any(message.info.get("id") == message_id for message in self._history):
            raise UsageError(f"there is a message {message_id} already")
        parts: list[Document] = []
        for part in prompt.parts:
            parts += await self._expand(part, message_id, steering=prompt.steering)
        info = UserMessage(
            id=message_id,
            session_id=self._session.id,
            time=MessageTime(created=ids.now_ms()),
            format=prompt.format,
            agent=agent.name,
            model=ModelRef(provider_id=model.provider_id, model_id=model.id),
            system=prompt.system,
            tools=prompt.tools,
            variant=prompt.variant or (agent.variant if agent.variant in model.variants else None),
        )
        if not all(part.get("synthetic") for part in parts):
            parts += [self._text(info.id, reminder) for reminder in self._reminders(info)]
        stored = info.document
        if not is_by_user(StoredMessage(stored, parts)):
            stored, parts = await self._runtime.hooks.prompt(stored, parts)
        return StoredMessage(stored, parts)

    def _model(self, prompt: Prompt, of_agent: ModelRef | None) -> Model:
        if prompt.model:
            return self._runtime.find_model(prompt.model)
        if of_agent is not None:
            return self._runtime.model_named(of_agent)
        last = self._history.last_user()
        if last is not None and last.info.get("model"):
            return self._runtime.model_of(last.info)
        return self._runtime.default_model()

    async def _expand(self, part: Document, message_id: str, *, steering: bool) -> list[Document]:
        given = replace(validate_prompt_part(part), session_id=self._session.id, message_id=message_id)
        if isinstance(given, FilePart):
            return await self._file(given)
        named = replace(given, id=ids.ascending("prt", given.id))
        if isinstance(named, AgentPart):
            hint = f" Use the context above to write a prompt, and call the task tool with the subagent {named.name!r}."
            return [named.document, self._text(message_id, hint)]
        if steering and isinstance(named, TextPart) and not named.synthetic:
            named = replace(named, metadata=(named.metadata or {}) | {EXTENSION_KEY: {"steering": True}})
        return [named.document]

    def _text(self, message_id: str, text: str) -> Document:
        """Words that the user did not type."""
        return TextPart(
            id=ids.ascending("prt"), session_id=self._session.id, message_id=message_id, text=text, synthetic=True
        ).document

    async def _file(self, part: FilePart) -> list[Document]:
        scheme = part.url.partition(":")[0].lower()
        if part.source is not None and part.source.type == "resource":
            return await self._resource(part, part.source)
        if scheme == "data" and part.mime == "text/plain":
            called = self._called(part.message_id, {"filePath": part.filename or ""})
            return [called, self._text(part.message_id, _decode_data_url(part.url)), _kept(part)]
        if scheme == "file":
            return await self._local(part)
        return [_kept(part)]

    async def _resource(self, part: FilePart, source: FileSource) -> list[Document]:
        """A resource of an MCP server's, read as the user saw it."""
        server, uri = source.client_name or "", source.uri or ""
        said = self._text(part.message_id, f"Reading the MCP resource {part.filename or uri} ({uri})")
        try:
            found = await self._runtime.mcp.read(server, uri)
        except OpenseshError as error:
            return [said, self._text(part.message_id, f"Reading the MCP resource {uri} failed: {error.message}")]
        shown = [each.text if each.text is not None else f"[Binary content: {each.mime}]" for each in found]
        return [said, *(self._text(part.message_id, text) for text in shown), _kept(part)]

    async def _local(self, part: FilePart) -> list[Document]:
        path, query = _split(part.url)
        part = replace(part, mime="application/x-directory" if os.path.isdir(path) else part.mime or "text/plain")
        if part.mime not in ("text/plain", "application/x-directory"):
            called = self._called(part.message_id, {"filePath": path})
            try:
                content = await asyncio.to_thread(_read_bytes, path)
            except OSError as error:
                return [called, self._text(part.message_id, f"Reading {path} failed: {error.strerror}")]
            data = f"data:{part.mime};base64,{base64.b64encode(content).decode()}"
            return [called, _kept(replace(part, url=data))]
        offset, limit = _lines(query)
        asked = {"filePath": path, "offset": offset, "limit": limit}
        called = self._called(part.message_id, {key: value for key, value in asked.items() if value is not None})
        try:
            output, attachments = await self._read(path, offset, limit)
        except OpenseshError as error:
            return [called, self._text(part.message_id, f"Reading {path} failed: {error.message}")]
        kept = [_kept(replace(part, id="", mime=each["mime"], url=each["url"], source=None)) for each in attachments]
        return [called, self._text(part.message_id, output), *(kept or [_kept(part)])]

    def _called(self, message_id: str, given: Document) -> Document:
        shown = dumps_compact(given).decode()
        return self._text(message_id, f"Called the Read tool with the following input: {shown}")

    def _reminders(self, info: UserMessage) -> list[str]:
        """What the model must know of this prompt; stored with it, so that what was sent once stays as it was sent."""
        found: list[str] = []
        last = self._history.last_assistant()
        found += reminders(self._runtime, self._session, info.agent, last.info.get("agent") if last else None)
        today = day(info.time.created)
        if today != day(self._session.time.created):  # the system prompt keeps the session's first day
            found.append(f"<system-reminder>\nToday is {today}.\n</system-reminder>")
        return found


def _kept(part: FilePart) -> Document:
    return replace(part, id=ids.ascending("prt", part.id)).document


def _decode_data_url(url: str) -> str:
    from urllib.parse import unquote_to_bytes

    head, _, data = url.partition(",")
    try:
        content = base64.b64decode(data) if head.endswith(";base64") else unquote_to_bytes(data)
    except ValueError as error:
        raise UsageError(f"the data URL of an attached file is damaged: {error}") from None
    return content.decode(errors="replace")


def _split(url: str) -> tuple[str, str]:
    """The path of a file URL, and what is asked of the file."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        split = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{url!r} is not the address of a file: {error}") from None
    path = url2pathname(split.path)
    if "\0" in path:
        raise UsageError(f"{url!r} is not the address of a file: no path holds a NUL character")
    return path, split.query


def _read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _lines(query: str) -> tuple[int | None, int | None]:
    """The lines a file URL asks for, as offset and limit."""
    from urllib.parse import parse_qs

    given = parse_qs(query)
    start, end = (int(value) if (value := given.get(name, [""])[0]).isdecimal() else None for name in ("start", "end"))
    if start is None:
        return None, None
    offset = max(start, 1)
    return offset, end - (offset - 1) if end else None
