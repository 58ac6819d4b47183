"""Prompts: from what a caller passes to the user message that is stored, with its parts.

Attached files are read here with the read tool, so that the model sees what it would have seen had it asked. Text that
is added and that the user did not type is marked synthetic.
"""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from .. import events, ids
from ..config import mentions, system_paths
from ..errors import ModelNotFoundError, OpenseshError, RecordError, UsageError
from ..models.model import Model
from ..records import (
    EXTENSION_KEY,
    AgentPart,
    Document,
    FilePart,
    ModelRef,
    TextPart,
    UserMessage,
    as_list,
    as_object,
    dumps_compact,
    object_at,
    read_part,
)
from ..storage.disk import read_file
from ..storage.protocol import StoredMessage
from ..tools.json_schema import schema_problems
from .cancellation import run_in_thread_uncancellable
from .plan_mode import plan_file, plan_reminders
from .prompts import format_day
from .session_history import is_user_shell
from .session_writer import synthetic_part
from .tool_context import NearbyInstructions, output_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..config import Config
    from ..project import ProjectLocation
    from ..records import FileSource, Part, Session
    from ..tools.filetimes import FileTimes
    from ..tools.mcp.servers import McpServers
    from ..tools.tool import Context, ToolOutput
    from .components import Environment
    from .model_choice import Agents, Models
    from .session_history import History

_REQUIRED_FIELDS = {"text": "text", "file": "url", "agent": "name", "subtask": "prompt"}
"""The types of part that a prompt may have, and the field that each needs."""


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
    """It arrives while the model is working."""
    checks_model: bool = True
    """Whether a model that does not exist raises. Otherwise the prompt is stored, and its outcome says so."""

    def __post_init__(self) -> None:
        """Refuse values of the wrong type, and a format that no step would follow."""
        for name in ("agent", "model", "variant", "system", "message_id"):
            value: object = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise UsageError(f"{name} of a prompt is text; this is a value of type {type(value).__name__}")
        if isinstance(self.parts, str | dict) or not all(isinstance(part, dict) for part in self.parts):
            raise UsageError('parts of a prompt are a list like [{"type": "text", "text": "..."}]')
        tools = as_object(self.tools or {})
        if tools is None or not all(isinstance(value, bool) for value in tools.values()):
            raise UsageError('tools of a prompt are switched on or off by name: {"bash": False}')
        if self.format is not None:
            _check_format(self.format)


class PromptOptions(TypedDict, total=False):
    """The fields of :class:`Prompt` that can be passed by name beside the text of a prompt."""

    agent: str | None
    model: str | None
    variant: str | None
    system: str | None
    format: dict[str, Any] | None
    tools: dict[str, bool] | None
    message_id: str | None


def as_prompt(prompt: str | Prompt, options: PromptOptions, parts: Callable[[str], tuple[Document, ...]]) -> Prompt:
    """Return a prompt, or one of a text with ``options`` and the ``parts`` of the text."""
    if isinstance(prompt, Prompt):
        if options:
            raise UsageError(f"{', '.join(options)}: beside a Prompt, set its own fields instead")
        return prompt
    if not isinstance(prompt, str):
        raise UsageError(f"a prompt is text; this is a value of type {type(prompt).__name__}")
    if not prompt.strip():
        raise UsageError("the prompt is empty")
    return Prompt(parts=parts(prompt), **options)


def text_prompt(text: str, files: Sequence[str] = (), **options: Unpack[PromptOptions]) -> Prompt:
    """Return a prompt of a text and attached files, given by path."""
    if not text.strip() and not files:
        raise UsageError("the prompt is empty")
    attached = [file_part(path) for path in files]
    return Prompt(parts=({"type": "text", "text": text}, *attached), **options)


def file_part(path: str) -> Document:
    """Return the part of a prompt that attaches a file or folder of this machine."""
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


def mentioned_parts(
    text: str, location: ProjectLocation, agents: Agents, *, typed: str | None = None, foreign: str = ""
) -> tuple[Document, ...]:
    """Return ``text`` and the files and agents that it mentions with ``@`` as parts of a prompt.

    ``typed`` is what the user wrote, where ``text`` holds more: output of a program or standard input attaches no file.
    ``foreign`` is text that came with the project, and that attaches no file outside of it.
    """
    parts: list[Document] = [{"type": "text", "text": text}]
    own = mentions(text if typed is None else typed)
    for name in dict.fromkeys((*own, *mentions(foreign))):
        path = os.path.expanduser(name) if name.startswith("~/") else name
        # Relative to the root of the project, as in OpenCode, or to the working directory.
        candidates = (os.path.join(folder, path) for folder in (location.sandbox, location.directory))
        existing = next(filter(os.path.exists, candidates), None)
        if existing is not None and (name in own or location.contains(os.path.realpath(existing))):
            parts.append(file_part(existing) | {"filename": name})
        elif name in agents.by_name:
            parts.append({"type": "agent", "name": name})
    return tuple(parts)


def validate_prompt_part(part: Document) -> Part:
    """Return a part that a caller passed as a record. Raises :class:`~opensesh.errors.UsageError` if it is not
    valid in a prompt."""
    kind = str(part.get("type"))
    if kind not in _REQUIRED_FIELDS:
        raise UsageError(f"a prompt has parts of type {', '.join(_REQUIRED_FIELDS)}, not {kind!r}")
    if not isinstance(part.get(_REQUIRED_FIELDS[kind]), str):
        raise UsageError(f"a part of type {kind} needs the text {_REQUIRED_FIELDS[kind]!r}")
    try:
        return read_part({"id": "", "sessionID": "", "messageID": ""} | part)
    except RecordError as error:
        raise UsageError(f"a part of type {kind} is not valid: {error.detail}") from None


def _check_format(output_format: object) -> None:
    """Raise :class:`~opensesh.errors.UsageError` for a format of the answer that no step would follow."""
    document = as_object(output_format) or {}
    if document.get("type") == "text":
        return
    if document.get("type") != "json_schema":
        raise UsageError('a format is {"type": "text"} or {"type": "json_schema", "schema": {...}}')
    schema = as_object(document.get("schema"))
    if schema is None or schema.get("type", "object") != "object":
        raise UsageError("the schema of a format has to be the JSON schema of an object")
    try:
        schema_problems({}, schema)
    except ValueError as error:
        raise UsageError(f"the schema of a format cannot be followed: {error}") from None


class PromptComposer:
    """Makes the user messages of one session from prompts."""

    def __init__(
        self,
        session: Session,
        history: History,
        files: FileTimes,
        environment: Environment,
        mcp: McpServers,
    ) -> None:
        self._session = session
        self._history = history
        self._files = files
        self._agents = environment.agents
        self._models = environment.models
        self._mcp = mcp
        self._hooks = environment.hooks
        self._writer = environment.writer
        self._config = environment.config
        self._location = environment.writer.location
        self._follows_opencode = environment.settings.opencode_events
        """Whether clients of OpenCode follow: reminders are stored in the metadata of the user's text instead of as
        parts of their own, and an attachment that cannot be read is published as an error."""
        self._reader: _AttachmentContext | None = None

    async def compose(self, prompt: Prompt) -> StoredMessage:
        """Return the message to store. Raises if the prompt is not valid; nothing is written."""
        agent, models = self._agents.get(prompt.agent), self._models
        last_prompt = self._history.last_prompt
        if prompt.model:
            model = _named_model(models, prompt)
        elif agent.model is not None:
            model = models.of_reference(agent.model)
        elif last_prompt is not None and last_prompt.info.get("model"):
            model = models.of_prompt(last_prompt.info)
        else:
            model = models.of_session(self._session.document) or models.default()
        message_id, time = self._writer.new_stamp(self._session.id, prompt.message_id)
        if prompt.message_id and any(message.info.get("id") == message_id for message in self._history.messages):
            raise UsageError(f"there is a message {message_id} already")
        parts: list[Document] = []
        for part in prompt.parts:
            parts += await self._expand(part, message_id, steering=prompt.steering)
        for part in parts:
            if part["type"] == "subtask" and "command" in part:
                part.setdefault("model", {"providerID": model.provider_id, "modelID": model.id})
        info = UserMessage(
            id=message_id,
            session_id=self._session.id,
            time=time,
            format=prompt.format,
            agent=agent.name,
            model=ModelRef(provider_id=model.provider_id, model_id=model.id),
            system=prompt.system,
            tools=prompt.tools,
            variant=prompt.variant or (agent.variant if agent.variant in model.variants else None),
        )
        if not all(part.get("synthetic") for part in parts):
            self._add_reminders(info, parts)
        stored = info.document
        if self._hooks.plugins.have_hooks and not is_user_shell(StoredMessage(stored, parts)):
            stored, parts = await self._hooks.prompt(stored, parts)
        return StoredMessage(stored, parts)

    def _add_reminders(self, info: UserMessage, parts: list[Document]) -> None:
        """Add what the model must know with this prompt. It is stored, so that later requests repeat it."""
        last_answer = self._history.last_answer
        plan = plan_file(self._config, self._location, self._session)
        before = last_answer.info.get("agent") if last_answer else None
        reminders = plan_reminders(self._config, plan, info.agent, before)
        today = format_day(info.time.created)
        reminder = f"<system-reminder>\nToday is {today}.\n</system-reminder>"
        # The system prompt keeps the session's first day. A prompt that has been compacted reminds of nothing any more.
        if today != format_day(self._session.time.created) and not self._reminds(reminder):
            reminders.append(reminder)
        if not reminders:
            return
        typed = next((part for part in parts if part["type"] == "text" and not part.get("synthetic")), None)
        if typed is not None and self._follows_opencode:
            metadata = object_at(typed, "metadata")
            extension = object_at(metadata, EXTENSION_KEY)
            typed["metadata"] = metadata | {EXTENSION_KEY: extension | {"reminders": reminders}}
        else:
            parts += [self._synthetic(info.id, reminder) for reminder in reminders]

    def _reminds(self, reminder: str) -> bool:
        """Whether a visible prompt carries this reminder."""
        for message in self._history.messages:
            if message.info.get("role") != "user":
                continue
            for part in message.parts:
                hidden = as_list(object_at(part, "metadata", EXTENSION_KEY).get("reminders")) or ()
                if reminder in (part.get("text"), *hidden):
                    return True
        return False

    async def _expand(self, document: Document, message_id: str, *, steering: bool) -> list[Document]:
        part = replace(validate_prompt_part(document), session_id=self._session.id, message_id=message_id)
        if isinstance(part, FilePart):
            scheme = part.url.partition(":")[0].lower()
            if part.source is not None and part.source.type == "resource":
                return await self._resource(part, part.source)
            if scheme == "file":
                return await self._local_file(part)
            is_text = scheme == "data" and part.mime == "text/plain"
            return [*(self._decoded(part) if is_text else ()), _with_id(part)]
        part = replace(part, id=ids.ascending("prt", part.id))
        if isinstance(part, AgentPart):
            hint = f" Use the context above to write a prompt, and call the task tool with the subagent {part.name!r}."
            return [part.document, self._synthetic(message_id, hint)]
        if steering and isinstance(part, TextPart) and not part.synthetic:
            part = replace(part, metadata=(part.metadata or {}) | {EXTENSION_KEY: {"steering": True}})
        return [part.document]

    def _synthetic(self, message_id: str, text: str) -> Document:
        return synthetic_part(self._session.id, message_id, text)

    # -- attachments ---------------------------------------------------------------------------------------------------

    def _decoded(self, part: FilePart) -> list[Document]:
        """Return the text of a data URL, as if the read tool had read it."""
        from urllib.parse import unquote_to_bytes  # slow to import, and only attachments need it

        head, _, data = part.url.partition(",")
        try:
            content = base64.b64decode(data) if head.endswith(";base64") else unquote_to_bytes(data)
        except ValueError as error:
            raise UsageError(f"the data URL of an attached file is damaged: {error}") from None
        call = self._read_call(part.message_id, {"filePath": part.filename or ""})
        return [call, self._synthetic(part.message_id, content.decode(errors="replace"))]

    async def _resource(self, part: FilePart, source: FileSource) -> list[Document]:
        """Read a resource of an MCP server."""
        server, uri = source.client_name or "", source.uri or ""
        call = self._synthetic(part.message_id, f"Reading the MCP resource {part.filename or uri} ({uri})")
        try:
            contents = await self._mcp.read(server, uri)
        except OpenseshError as error:
            return [call, self._synthetic(part.message_id, f"Reading the MCP resource {uri} failed: {error.message}")]
        texts = [
            content.text if content.text is not None else f"[Binary content: {content.mime}]" for content in contents
        ]
        return [call, *(self._synthetic(part.message_id, text) for text in texts), _with_id(part)]

    async def _local_file(self, part: FilePart) -> list[Document]:
        path, offset, limit = _parse_file_url(part.url)
        part = replace(part, mime="application/x-directory" if os.path.isdir(path) else part.mime or "text/plain")
        if part.mime not in ("text/plain", "application/x-directory"):
            call = self._read_call(part.message_id, {"filePath": path})
            try:
                content = await run_in_thread_uncancellable(read_file, path)
            except OSError as error:
                return [call, self._synthetic(part.message_id, f"Reading {path} failed: {error.strerror}")]
            data = f"data:{part.mime};base64,{base64.b64encode(content).decode()}"
            return [call, _with_id(replace(part, url=data))]
        arguments: Document = {"filePath": path}
        arguments |= {"offset": offset} if offset is not None else {}
        arguments |= {"limit": limit} if limit is not None else {}
        call = self._read_call(part.message_id, arguments)
        try:
            if self._reader is None:
                self._reader = _AttachmentContext(self._session.id, self._files, self._config, self._location)
            output = await self._reader.read(arguments)
        except OpenseshError as error:
            if self._follows_opencode:
                failure: Document = {"name": "UnknownError", "data": {"message": error.message}}
                self._writer.publish(events.SessionError(session_id=self._session.id, error=failure))
            return [call, self._synthetic(part.message_id, f"Reading {path} failed: {error.message}")]
        attached = [
            _with_id(replace(part, id="", mime=file["mime"], url=file["url"], source=None))
            for file in output.attachments
        ]
        return [call, self._synthetic(part.message_id, output.output), *(attached or [_with_id(part)])]

    def _read_call(self, message_id: str, arguments: Document) -> Document:
        shown = dumps_compact(arguments).decode()
        return self._synthetic(message_id, f"Called the Read tool with the following input: {shown}")


class _AttachmentContext:
    """The context in which the read tool reads attachments: the user attached them, so everything is allowed."""

    def __init__(self, session_id: str, files: FileTimes, config: Config, location: ProjectLocation) -> None:
        self.session_id = session_id
        self.message_id = self.call_id = ""
        self.agent = ""
        self.directory = location.directory
        self.worktree = location.sandbox
        self.files = files
        self.outputs = output_limits(config)
        self._config = config
        self.instructions: NearbyInstructions | None = None

    async def read(self, arguments: Document) -> ToolOutput:
        """Read a file with the read tool."""
        from ..tools.read import ReadTool

        if self.instructions is None:
            known = await run_in_thread_uncancellable(system_paths, self._config)
            self.instructions = NearbyInstructions(self._config, set(known))
        return await ReadTool().run(arguments, cast("Context", self))

    async def ask(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        pass

    async def progress(self, *, title: str | None = None, metadata: Mapping[str, Any] | None = None) -> None:
        pass


def _with_id(part: FilePart) -> Document:
    return replace(part, id=ids.ascending("prt", part.id)).document


def _parse_file_url(url: str) -> tuple[str, int | None, int | None]:
    """Return the path of a file URL, and the lines that its query asks for, as offset and limit."""
    from urllib.parse import parse_qs, urlsplit
    from urllib.request import url2pathname

    try:
        split = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{url!r} is not a valid file URL: {error}") from None
    path = url2pathname(split.path)
    if "\0" in path:
        raise UsageError(f"{url!r} is not a valid file URL: a path cannot contain a NUL character")
    fields = parse_qs(split.query)
    start, end = (int(value) if (value := fields.get(name, [""])[0]).isdecimal() else None for name in ("start", "end"))
    if start is None:
        return path, None, None
    offset = max(start, 1)
    return path, offset, end - (offset - 1) if end else None


def _named_model(models: Models, prompt: Prompt) -> Model:
    name = prompt.model or ""
    try:
        return models.catalogue.find(name)
    except ModelNotFoundError:
        if prompt.checks_model:
            raise
        provider_id, _, model_id = name.partition("/")
        return Model(id=model_id, provider_id=provider_id)
