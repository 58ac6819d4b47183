"""Messages: reading them, prompting, commands, shell commands, compaction, editing parts."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import msgspec
from msgspec import Meta, Struct

from ...engine.cancellation import run_in_thread_uncancellable
from ...engine.prompt import Prompt
from ...errors import ModelNotFoundError, NotFoundError, RecordError
from ...records import AssistantMessage, Document, as_object, created, object_at, position, read_part
from ...records.view import js_name
from ..client_documents import client_message, known_fields, with_stored_extension
from ..operations import Call, MessageID, PartID, Routes, count_of
from ..responses import RequestError, empty_response, json_response, validation_response

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...engine.loop import Outcome
    from ...storage.protocol import StoredMessage

routes = Routes()
_HOLD_BACK_SECONDS = 0.06
"""``opencode run --attach`` ends with the response, and prints only the events that it has received by then."""
_DELIVERY_SECONDS = 0.5
_REQUIRED_FIELDS = {
    "text": ("text",),
    "subtask": ("prompt", "description", "agent"),
    "reasoning": ("text", "time"),
    "file": ("mime", "url"),
    "tool": ("callID", "tool", "state"),
    "step-finish": ("reason", "cost", "tokens"),
    "snapshot": ("snapshot",),
    "patch": ("hash", "files"),
    "agent": ("name",),
    "retry": ("attempt", "error", "time"),
    "compaction": ("auto",),
}
"""What a part must have beside its ids. Stored parts are read without it, since older programs wrote less."""
_REQUIRED_STATE = {
    "pending": ("input", "raw"),
    "running": ("input", "time"),
    "completed": ("input", "output", "title", "metadata", "time"),
    "error": ("input", "error", "time"),
}
"""What the state of a tool call must have."""


class MessageListQuery(Struct, frozen=True):
    """A page of messages."""

    limit: float | None = None
    """Only the newest; 0 for all."""
    before: str | None = None
    """Only those before the cursor that came with the previous page (OpenCode 1.18)."""


class PromptModel(Struct, frozen=True, rename=js_name):
    """A model by its provider and name."""

    provider_id: str
    model_id: str

    @property
    def name(self) -> str:
        """``provider/model``."""
        return f"{self.provider_id}/{self.model_id}"


class TextPartInput(Struct, frozen=True, tag_field="type", tag="text"):
    """Text of a prompt."""

    text: str
    id: PartID | None = None
    synthetic: bool | None = None
    ignored: bool | None = None
    time: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class FilePartInput(Struct, frozen=True, tag_field="type", tag="file"):
    """An attached file: a ``file:`` or ``data:`` URL."""

    mime: str
    url: str
    id: PartID | None = None
    filename: str | None = None
    source: dict[str, Any] | None = None


class AgentPartInput(Struct, frozen=True, tag_field="type", tag="agent"):
    """A mention of a subagent."""

    name: str
    id: PartID | None = None
    source: dict[str, Any] | None = None


class SubtaskPartInput(Struct, frozen=True, tag_field="type", tag="subtask"):
    """A task for a subagent."""

    prompt: str
    description: str
    agent: str
    id: PartID | None = None
    model: PromptModel | None = None
    command: str | None = None


PartInput = TextPartInput | FilePartInput | AgentPartInput | SubtaskPartInput


class TextFormat(Struct, frozen=True, tag_field="type", tag="text"):
    """An answer in plain text."""


class SchemaFormat(Struct, frozen=True, tag_field="type", tag="json_schema", rename=js_name):
    """An answer that follows a JSON schema."""

    schema: dict[str, Any]
    retry_count: Annotated[int, Meta(ge=0)] = 2


class PromptBody(Struct, frozen=True, rename=js_name):
    """A prompt."""

    parts: list[PartInput]
    message_id: MessageID | None = None
    model: PromptModel | None = None
    agent: str | None = None
    no_reply: bool = False
    """Only store the prompt, without an answer; the next request contains it."""
    tools: dict[str, bool] | None = None
    format: TextFormat | SchemaFormat | None = None
    system: str | None = None
    variant: str | None = None
    provider_id: str | None = None
    """The model as OpenCode's Python SDK names it, together with ``modelID``."""
    model_id: str | None = None


class CommandBody(Struct, frozen=True, rename=js_name):
    """A command of the configuration, with its arguments."""

    command: str
    arguments: str
    message_id: MessageID | None = None
    agent: str | None = None
    model: str | None = None
    """``provider/model``."""
    variant: str | None = None
    parts: list[FilePartInput] | None = None


class ShellBody(Struct, frozen=True, rename=js_name):
    """A command for the user's shell."""

    NULLABLE: ClassVar = ("messageID",)
    """A field of OpenCode 1.18, as those of :class:`SessionUpdate`."""
    agent: str
    command: str
    model: PromptModel | None = None
    message_id: MessageID | None = None


class SummarizeBody(Struct, frozen=True, rename=js_name):
    """The model that compacts."""

    provider_id: str
    model_id: str
    auto: bool = False


class InitBody(Struct, frozen=True, rename=js_name):
    """The model that writes AGENTS.md."""

    model_id: str
    provider_id: str
    message_id: MessageID


class MessageWithParts(Struct, frozen=True):
    """A message and its parts."""

    info: AssistantMessage
    parts: list[dict[str, Any]]


class PartBody(Struct, frozen=True, rename=js_name):
    """A part, with the fields of its type."""

    id: PartID
    session_id: str
    message_id: MessageID
    type: Literal[
        "text", "subtask", "reasoning", "file", "tool", "step-start", "step-finish", "snapshot", "patch", "agent",
        "retry", "compaction",
    ]  # fmt: skip


class PageCursor(Struct, frozen=True, forbid_unknown_fields=True):
    """The oldest message of a page. Clients send it back as it came: base64url of its JSON."""

    id: MessageID
    time: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a cursor that a client sent."""
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (ValueError, msgspec.MsgspecError):
            raise RequestError(400, "BadRequest", "the cursor is not one of this server") from None

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


@routes.get("/session/{sessionID}/message", "session.messages", response=list[MessageWithParts], errors=(400, 404))
async def list_messages(call: Call, query: MessageListQuery) -> object:
    """List the messages of a session, oldest first.

    With a limit, the headers ``X-Next-Cursor`` and ``Link`` lead to the page of older messages, if there is one.
    """
    limit = count_of(query.limit or 0)
    cursor = PageCursor.parse(query.before) if query.before else None
    if cursor is not None and limit <= 0:
        raise RequestError(400, "BadRequest", "a page of older messages needs a limit")
    if limit < 0:
        return []  # as in OpenCode

    def read(engine: Engine) -> tuple[list[Document], PageCursor | None]:
        messages = engine.sessions.messages(call.session_id, last=limit + 1 if limit and cursor is None else 0)
        if cursor is not None:
            end = position({"id": cursor.id, "time": {"created": cursor.time}})
            messages = [message for message in messages if position(message.info) < end]
        page = messages[-limit:]
        oldest = page[0].info if len(messages) > len(page) else None
        next_cursor = None if oldest is None else PageCursor(id=oldest["id"], time=created(oldest))
        return [client_message(message) for message in page], next_cursor

    documents, next_cursor = await call.in_thread(read)
    headers: dict[str, str] = {}
    if next_cursor is not None:
        url = call.request.url.include_query_params(before=str(next_cursor))
        headers = {"x-next-cursor": str(next_cursor), "link": f'<{url}>; rel="next"'}
        headers["access-control-expose-headers"] = "Link, X-Next-Cursor"
    return json_response(documents, headers=headers)


@routes.get("/session/{sessionID}/message/{messageID}", "session.message", response=MessageWithParts, errors=(400, 404))
async def get_message(call: Call) -> object:
    """Get a message."""
    return await call.in_thread(lambda engine: client_message(_find_message(engine, call)))


@routes.delete("/session/{sessionID}/message/{messageID}", "session.deleteMessage", response=bool, errors=(400, 404))
async def delete_message(call: Call) -> object:
    """Remove a message and its parts (OpenCode 1.18). One that does not exist is removed already, as in OpenCode."""
    async with call.session_engine() as engine:
        _check_idle(engine, call)
        with suppress(NotFoundError):
            await run_in_thread_uncancellable(_find_message, engine, call)
            message_id = call.parameters["messageID"]
            await run_in_thread_uncancellable(engine.sessions.remove_message, call.session_id, message_id)
    return True


@routes.post("/session/{sessionID}/message", "session.prompt", response=MessageWithParts, errors=(400, 404))
async def prompt_session(call: Call, body: PromptBody) -> object:
    """Send a prompt, and wait for the last message of the answer.

    The run goes on if the client disconnects. A prompt that arrives while the session runs joins the run.
    """
    prompt = _prompt(call, body)
    async with call.session_engine() as engine:
        await _keep_tools(engine, call.session_id, body)
        if body.no_reply:
            return client_message(await engine.append(call.session_id, prompt))
        is_known = _is_known_model(engine, prompt.model)
        outcome = await engine.submit(call.session_id, prompt)
        if not is_known:
            await asyncio.shield(outcome)
            await _deliver(call, engine)
            return empty_response()
        return await _answer(call, engine, await asyncio.shield(outcome))


@routes.post("/session/{sessionID}/prompt_async", "session.prompt_async", response=None, status=204, errors=(400, 404))
async def prompt_session_async(call: Call, body: PromptBody) -> object:
    """Send a prompt; the answer comes as events."""
    prompt = _prompt(call, body)
    async with call.session_engine() as engine:
        await _keep_tools(engine, call.session_id, body)
        await (engine.append(call.session_id, prompt) if body.no_reply else engine.submit(call.session_id, prompt))
    return None


@routes.post("/session/{sessionID}/command", "session.command", response=MessageWithParts, errors=(400, 404))
async def run_command(call: Call, body: CommandBody) -> object:
    """Run a command of the configuration."""
    async with call.session_engine() as engine:
        try:
            outcome = await engine.command(
                call.session_id,
                body.command,
                body.arguments,
                call.document.get("parts") or (),
                agent=body.agent,
                model=body.model,
                variant=body.variant,
                message_id=body.message_id,
            )
        except ModelNotFoundError as error:
            provider_id, _, model_id = (body.model or "").partition("/")
            data = {"providerID": provider_id, "modelID": model_id, "suggestions": error.suggestions}
            raise RequestError(400, "ProviderModelNotFoundError", error.message, **data) from None
        return await _answer(call, engine, await asyncio.shield(outcome))


@routes.post("/session/{sessionID}/shell", "session.shell", response=MessageWithParts, errors=(400, 404, 409))
async def run_shell(call: Call, body: ShellBody) -> object:
    """Run a command in the user's shell, and record it in the session."""
    async with call.session_engine() as engine:
        model = body.model.name if body.model is not None else None
        outcome = await engine.shell(
            call.session_id, body.command, agent=body.agent, model=model, message_id=body.message_id
        )
        return await _answer(call, engine, outcome)


@routes.post("/session/{sessionID}/summarize", "session.summarize", response=bool, errors=(400, 404))
async def summarize_session(call: Call, body: SummarizeBody) -> object:
    """Compact a session, and wait until it is done."""
    async with call.session_engine() as engine:
        model = f"{body.provider_id}/{body.model_id}"
        await asyncio.shield(await engine.compact(call.session_id, model=model, auto=body.auto))
        await _deliver(call, engine)
    return True


@routes.post("/session/{sessionID}/init", "session.init", response=bool, errors=(400, 404))
async def init_session(call: Call, body: InitBody) -> object:
    """Let a model write AGENTS.md, and wait until it is done."""
    async with call.session_engine() as engine:
        model = f"{body.provider_id}/{body.model_id}"
        outcome = await engine.command(call.session_id, "init", model=model, message_id=body.message_id)
        await asyncio.shield(outcome)
        await _deliver(call, engine)
    return True


@routes.patch(
    "/session/{sessionID}/message/{messageID}/part/{partID}", "part.update", response=dict[str, Any], errors=(400, 404)
)
async def update_part(call: Call, body: PartBody) -> object:
    """Replace a part of a message."""
    ids_of_path = [call.parameters[name] for name in ("partID", "messageID", "sessionID")]
    if [body.id, body.message_id, body.session_id] != ids_of_path:
        raise RequestError(400, "BadRequest", "the ids of the part are not those of the path")
    state = object_at(call.document, "state")
    missing = [f"`{name}`" for name in _REQUIRED_FIELDS.get(body.type, ()) if name not in call.document]
    if body.type == "tool" and not missing:
        required = _REQUIRED_STATE.get(str(state.get("status")), ("status",))
        missing = [f"`{name}` - at `$.state`" for name in required if name not in state]
    if missing:
        error = msgspec.ValidationError(f"Object missing required field {missing[0]}")
        return validation_response(error, call.document)
    try:
        view = read_part(call.document)
    except RecordError as error:
        return validation_response(error, call.document)
    part = known_fields(view.document, view)
    async with call.session_engine() as engine:
        _check_idle(engine, call)
        message = await run_in_thread_uncancellable(_find_message, engine, call)
        stored = next((one for one in message.parts if one.get("id") == body.id), part)
        await run_in_thread_uncancellable(engine.sessions.update_part, with_stored_extension(part, stored))
    return part


@routes.delete(
    "/session/{sessionID}/message/{messageID}/part/{partID}", "part.delete", response=bool, errors=(400, 404)
)
async def delete_part(call: Call) -> object:
    """Remove a part of a message. One that does not exist is removed already, as in OpenCode."""
    async with call.session_engine() as engine:
        _check_idle(engine, call)
        try:
            await run_in_thread_uncancellable(_find_message, engine, call)
        except NotFoundError:
            return True
        names = (call.parameters[name] for name in ("sessionID", "messageID", "partID"))
        await run_in_thread_uncancellable(engine.sessions.remove_part, *names)
    return True


async def _keep_tools(engine: Engine, session_id: str, body: PromptBody) -> None:
    """Make the tools of a prompt the rules of its session, as OpenCode does: they apply to later prompts too."""
    if body.tools:
        engine.agent(body.agent)  # raises before anything is changed
        rules = [
            {"permission": name, "pattern": "*", "action": "allow" if enabled else "deny"}
            for name, enabled in body.tools.items()
        ]
        await engine.components.writer.edit(session_id, lambda info: info.update(permission=rules), touch=False)


def _prompt(call: Call, body: PromptBody) -> Prompt:
    model = body.model
    if model is None and body.provider_id and body.model_id:
        model = PromptModel(provider_id=body.provider_id, model_id=body.model_id)
    return Prompt(
        parts=tuple(call.document["parts"]),
        agent=body.agent,
        model=model.name if model is not None else None,
        variant=body.variant,
        system=body.system,
        format=_format(call, body.format),
        tools=body.tools,
        message_id=body.message_id,
        checks_model=False,
    )


def _format(call: Call, declared: TextFormat | SchemaFormat | None) -> Document | None:
    document = as_object(call.document.get("format"))
    if document is not None and isinstance(declared, SchemaFormat):
        return document | {"retryCount": declared.retry_count}
    return document


def _is_known_model(engine: Engine, name: str | None) -> bool:
    try:
        return name is None or bool(engine.model(name))
    except ModelNotFoundError:
        return False


async def _answer(call: Call, engine: Engine, outcome: Outcome) -> Document:
    await _deliver(call, engine)
    if outcome.message is None:
        raise RequestError(500, "UnknownError", f"there is no answer: {outcome.description}")
    return client_message(outcome.message)


async def _deliver(call: Call, engine: Engine) -> None:
    """Let the streams of OpenCode's own programs have all events before the response."""
    if call.request.headers.get("user-agent", "").startswith("opencode/"):
        call.state.client_channels.flush()
        await call.state.streams.delivered(engine.location.directory, _DELIVERY_SECONDS)
        await asyncio.sleep(_HOLD_BACK_SECONDS)


def _find_message(engine: Engine, call: Call) -> StoredMessage:
    message_id = call.parameters["messageID"]
    for message in engine.sessions.messages(call.session_id):
        if message.info.get("id") == message_id:
            return message
    raise NotFoundError(f"the session has no message {message_id}", id=message_id)


def _check_idle(engine: Engine, call: Call) -> None:
    if call.session_id in engine.status():
        raise RequestError(409, "SessionBusyError", f"Session {call.parameters['sessionID']} is busy")
