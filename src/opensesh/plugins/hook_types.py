"""Inputs and outputs of plugin hooks.

Inputs are frozen. A hook sets the fields of its :class:`HookOutput`, or changes the lists and dictionaries in it. Both
hold copies, so that no hook changes a record by accident.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any, Literal, TypeVar, cast

import msgspec
from msgspec import Struct

from ..events import Event
from ..models.model import Model
from ..records import Document
from ..storage.protocol import StoredMessage
from ..tools.tool import Tool, missing_attributes


class HookInput(Struct, frozen=True, kw_only=True):
    """The input of a hook."""


class Host(HookInput, frozen=True, kw_only=True):
    """The directory and project that a plugin runs in, and its options."""

    directory: str
    """The absolute path of the directory that sessions work in."""
    worktree: str
    """The root of the project; ``/`` outside of version control."""
    project_id: str
    options: dict[str, Any] = {}
    """The plugin's options in the configuration: ``"plugin": [["./it.py", {"key": "value"}]]``."""


OutputT = TypeVar("OutputT", bound="HookOutput")
Purpose = Literal["answer", "title", "summary"]
"""What a model call is for: the next step of a session, its title, or a summary."""

Credentials = dict[str, Any]
"""An entry of ``auth.json``: ``{"type": "oauth", "refresh": ..., "access": ..., "expires": ...}`` with the end of the
access token in milliseconds (0 for none), or ``{"type": "api", "key": ...}``."""

_HEADER = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_HEADER_VALUE = r"[\t\x20-\x7e]*"


class BusEvent(HookInput, frozen=True, kw_only=True):
    """``event``: an event of the bus."""

    event: Event
    sequence: int
    """Its sequence number."""


class AuthInput(HookInput, frozen=True, kw_only=True):
    """``auth``: a request to a provider is about to be sent."""

    provider_id: str
    model: Model
    stored: Document | None = None
    """The provider's entry in ``auth.json``, made by a login of this plugin or by OpenCode."""


class ChatMessageInput(HookInput, frozen=True, kw_only=True):
    """``chat.message``: a prompt is about to be stored."""

    session_id: str
    message_id: str
    agent: str
    model: str
    """``provider/model``."""
    variant: str | None = None


class ChatInput(HookInput, frozen=True, kw_only=True):
    """A model call is about to be made."""

    session_id: str
    agent: str
    model: Model
    message: Document
    """The user message that is being answered, as stored."""
    purpose: Purpose = "answer"


class PermissionAskInput(HookInput, frozen=True, kw_only=True):
    """``permission.ask``: a tool needs a permission that no rule denies."""

    session_id: str
    permission: str
    """``edit``, ``bash``, ``external_directory`` and so on."""
    patterns: tuple[str, ...]
    """The paths or command lines in question."""
    always: tuple[str, ...]
    """The patterns that a reply of "always" would allow."""
    metadata: Document
    message_id: str | None = None
    call_id: str | None = None


class CommandExecuteInput(HookInput, frozen=True, kw_only=True):
    """``command.execute.before``: a command is about to become a prompt."""

    session_id: str
    command: str
    arguments: str


class ToolExecuteBeforeInput(HookInput, frozen=True, kw_only=True):
    """``tool.execute.before``: a tool is about to run."""

    session_id: str
    message_id: str
    call_id: str
    tool: str
    agent: str


class ToolExecuteAfterInput(ToolExecuteBeforeInput, frozen=True, kw_only=True):
    """``tool.execute.after``: a tool has succeeded."""

    args: Document


class ShellEnvInput(HookInput, frozen=True, kw_only=True):
    """``shell.env``: a shell command is about to run."""

    cwd: str
    session_id: str | None = None
    call_id: str | None = None


class ToolDefinitionInput(ChatInput, frozen=True, kw_only=True):
    """``tool.definition``: a tool is about to be offered to a model."""

    tool: str


class SmallModelInput(HookInput, frozen=True, kw_only=True):
    """``experimental.provider.small_model``: an auxiliary call needs a fast, cheap model."""

    session_id: str
    agent: str
    model: Model
    """The model of the conversation."""


class CompactingInput(HookInput, frozen=True, kw_only=True):
    """``experimental.session.compacting``: a session is about to be compacted."""

    session_id: str
    model: Model
    auto: bool
    """Whether it is automatic."""


class TextCompleteInput(HookInput, frozen=True, kw_only=True):
    """``experimental.text.complete``: a text part is complete."""

    session_id: str
    message_id: str
    part_id: str


# -- logins that plugins offer (``auth.methods``) ----------------------------------------------------------------------


class AuthOption(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value to choose."""

    label: str
    value: str
    hint: str | None = None


class AuthCondition(Struct, frozen=True, kw_only=True):
    """Asks a question only after a certain answer to another one."""

    key: str
    op: Literal["eq", "neq"]
    value: str


class AuthPrompt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question to the user before a login begins."""

    key: str
    """The name of the answer in the inputs of ``authorize``."""
    message: str
    placeholder: str | None = None
    options: tuple[AuthOption, ...] = ()
    """The answers to choose from; none for a text."""
    when: AuthCondition | None = None


class Authorization(Struct, frozen=True, kw_only=True):
    """A login that has begun."""

    url: str
    """Where the user logs in."""
    instructions: str = ""
    callback: Callable[[str | None], Awaitable[Credentials | None]]
    """Called once, with the code of the user if ``method`` is ``code``. Returns what to store, or ``None`` if the login
    failed."""
    method: Literal["auto", "code"] = "auto"
    """``auto``: ``callback`` finds out itself whether the user has logged in. ``code``: the user enters a code."""


class AuthMethod(Struct, frozen=True, kw_only=True):
    """A way to log in to a provider."""

    provider_id: str
    label: str
    authorize: Callable[[dict[str, str]], Awaitable[Authorization]] | None = None
    """Begins a login, with the answers to ``prompts``. ``None``: the user enters an API key."""
    prompts: tuple[AuthPrompt, ...] = ()

    def document(self) -> Document:
        """Return the method for clients."""
        prompts = [
            {"type": "select" if prompt.options else "text", **cast("Document", msgspec.to_builtins(prompt))}
            for prompt in self.prompts
        ]
        kind = "api" if self.authorize is None else "oauth"
        return {"type": kind, "label": self.label} | ({"prompts": prompts} if prompts else {})


# -- outputs -----------------------------------------------------------------------------------------------------------


class HookOutput(Struct, kw_only=True):
    """The output of a hook, which it may change."""

    def copied(self: OutputT) -> OutputT:
        """Return a copy for one hook to change."""
        return deepcopy(self)

    def check(self) -> None:
        """Raise ``ValueError`` or ``TypeError`` if a field is invalid."""
        fields = msgspec.structs.asdict(self)
        _check_json(fields, "")
        try:
            msgspec.convert(fields, type(self))
        except msgspec.ValidationError as error:
            raise ValueError(str(error).replace("`", "").replace("$.", "")) from None


class ConfigOutput(HookOutput, kw_only=True):
    """The merged configuration, in the format of ``opencode.json``."""

    document: dict[str, Any]


class ProviderOutput(HookOutput, kw_only=True):
    """Providers and models by the provider's id, in the format of ``provider`` in ``opencode.json``."""

    providers: dict[str, dict[str, Any]] = {}


class ToolsOutput(HookOutput, kw_only=True):
    """Tools to add; a tool with the name of a built-in one replaces it."""

    tools: list[Tool] = []

    def copied(self) -> ToolsOutput:
        """Copy the list, not the tools."""
        return ToolsOutput(tools=list(self.tools))

    def check(self) -> None:
        """Check that each has the attributes of a tool."""
        for tool in cast("list[Any]", self.tools):
            if missing := missing_attributes(tool):
                raise TypeError(f"{tool!r} is not a tool: it lacks {', '.join(missing)}")


class AuthMethodsOutput(HookOutput, kw_only=True):
    """Ways to log in to providers."""

    methods: list[AuthMethod] = []

    def copied(self) -> AuthMethodsOutput:
        """Copy the list, not the methods."""
        return AuthMethodsOutput(methods=list(self.methods))

    def check(self) -> None:
        """Check that each is a method."""
        for method in cast("list[object]", self.methods):
            if not isinstance(method, AuthMethod):
                raise TypeError(f"{method!r} is not an AuthMethod")


class AuthOutput(HookOutput, kw_only=True):
    """The credentials for the provider."""

    key: str | None = None
    """``None`` uses the key of the configuration, ``auth.json`` or the environment."""
    bearer: bool = False
    """Whether it is an access token rather than an API key."""
    stored: dict[str, Any] | None = None
    """The entry to keep in ``auth.json`` from now on, after a token was renewed; ``None`` leaves it as it is."""


class ChatMessageOutput(HookOutput, kw_only=True):
    """The prompt that will be stored."""

    message: dict[str, Any]
    """The user message. Changes of ``id``, ``sessionID``, ``role`` and ``time`` are ignored."""
    parts: list[dict[str, Any]]
    """Its parts. A new part needs a ``type`` and its fields; ids are assigned."""


class ChatParamsOutput(HookOutput, kw_only=True):
    """Parameters of a model call."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_output_tokens: int | None = None
    options: dict[str, Any] = {}
    """Provider options under the names of OpenCode's configuration, such as ``reasoningEffort``."""


class ChatHeadersOutput(HookOutput, kw_only=True):
    """Additional headers of the request."""

    headers: dict[str, str] = {}

    def check(self) -> None:
        """Check that names and values are valid in HTTP and contain no line break."""
        super().check()
        for name, value in self.headers.items():
            if not re.fullmatch(_HEADER, name) or not re.fullmatch(_HEADER_VALUE, value):
                raise ValueError(f"the header {name!r} cannot be sent: it is not printable ASCII")


class PermissionAskOutput(HookOutput, kw_only=True):
    """The decision about a permission request."""

    status: Literal["ask", "allow", "deny"]
    """``allow`` or ``ask`` by the rules, unless a hook changes it."""
    message: str = ""
    """The reason of a ``deny``, for the model."""


class CommandExecuteOutput(HookOutput, kw_only=True):
    """The parts of the prompt that a command becomes."""

    parts: list[dict[str, Any]]


class ToolExecuteBeforeOutput(HookOutput, kw_only=True):
    """The arguments of a tool call, which are also stored."""

    args: dict[str, Any]


class ToolExecuteAfterOutput(HookOutput, kw_only=True):
    """The result of a tool call."""

    title: str
    output: str
    """The output for the model. It is not truncated again."""
    metadata: dict[str, Any] = {}
    attachments: list[dict[str, Any]] = []


class ShellEnvOutput(HookOutput, kw_only=True):
    """Environment variables to add for a shell command."""

    env: dict[str, str] = {}

    def check(self) -> None:
        """Check that the operating system accepts names and values."""
        super().check()
        for name, value in self.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"the variable {name!r} cannot be set")


class ToolDefinitionOutput(HookOutput, kw_only=True):
    """The description of a tool for the model."""

    description: str
    parameters: dict[str, Any]
    """The JSON schema of an object. The tool's arguments do not change."""

    def check(self) -> None:
        """Check that it is the schema of an object, as every provider requires."""
        super().check()
        if self.parameters.get("type") != "object":
            raise ValueError('the parameters of a tool are an object: {"type": "object", "properties": {...}}')


class MessagesTransformOutput(HookOutput, kw_only=True):
    """The visible history, oldest first. Stored records are not changed."""

    messages: list[StoredMessage]
    """Each has ``info`` (the message) and ``parts``."""

    def check(self) -> None:
        """Check that these are messages of JSON values. The request made from them is always valid."""
        for message in cast("list[Any]", self.messages):
            if not isinstance(message, StoredMessage):
                raise TypeError(f"{type(message).__name__} is not a message: use StoredMessage(info, parts)")
            _check_json({"info": message.info, "parts": message.parts}, "messages")
            msgspec.convert([message.info, *message.parts], list[dict[str, Any]])


class SystemTransformOutput(HookOutput, kw_only=True):
    """The system prompt in blocks. An empty list is ignored."""

    system: list[str]


class SmallModelOutput(HookOutput, kw_only=True):
    """The model for auxiliary calls."""

    model: str | None = None
    """``provider/model``; ``None`` uses the one of the configuration."""


class CompactingOutput(HookOutput, kw_only=True):
    """The prompt for compaction."""

    context: list[str] = []
    """Appended to the default prompt."""
    prompt: str | None = None
    """Replaces the default prompt."""


class AutoContinueOutput(HookOutput, kw_only=True):
    """Whether the turn continues after an automatic compaction."""

    enabled: bool = True


class TextCompleteOutput(HookOutput, kw_only=True):
    """The text that will be stored."""

    text: str


def _check_json(value: Any, path: str) -> None:
    """Raise ``ValueError`` or ``TypeError`` if ``value`` cannot be encoded as JSON."""
    match value:
        case None | str() | int():
            return
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{path}: {value} is not a JSON number")
        case list() | tuple():
            for at, item in enumerate(cast("list[Any]", value)):
                _check_json(item, f"{path}[{at}]")
        case dict():
            for key, item in cast("dict[Any, Any]", value).items():
                if not isinstance(key, str):
                    raise TypeError(f"{path}: the name {key!r} is not a string")
                _check_json(item, f"{path}.{key}" if path else key)
        case _:
            raise TypeError(f"{path}: {type(value).__name__} is not a JSON value")
