"""Where a plugin runs: the one thing that hooks are told of before there are any."""

from __future__ import annotations

import math
import re
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
    """What a hook is told."""


class Host(HookInput, frozen=True, kw_only=True):
    """Where a plugin runs."""

    directory: str
    """The directory that sessions work in; absolute."""
    worktree: str
    """Where the project ends; ``/`` outside of version control."""
    project_id: str
    options: dict[str, Any] = {}
    """What the configuration says behind the plugin's name: ``"plugin": [["./it.py", {"key": "value"}]]``."""


OutputT = TypeVar("OutputT", bound="HookOutput")
Purpose = Literal["answer", "title", "summary"]
"""What a model is asked for: the next step of a session, a title for it, or a summary of it."""

_HEADER = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_HEADER_VALUE = r"[\t\x20-\x7e]*"


class BusEvent(HookInput, frozen=True, kw_only=True):
    """An event of the bus."""

    event: Event
    sequence: int
    """Its number; they rise by one."""


class AuthInput(HookInput, frozen=True, kw_only=True):
    """A provider is about to be asked."""

    provider_id: str
    model: Model


class ChatMessageInput(HookInput, frozen=True, kw_only=True):
    """A prompt was handed in, and is about to be stored."""

    session_id: str
    message_id: str
    agent: str
    model: str
    """``provider/model``."""
    variant: str | None = None


class ChatInput(HookInput, frozen=True, kw_only=True):
    """A model is about to be asked."""

    session_id: str
    agent: str
    model: Model
    message: Document
    """The user's message that is being answered, as stored."""
    purpose: Purpose = "answer"


class PermissionAskInput(HookInput, frozen=True, kw_only=True):
    """A tool wants to do something that no rule forbids."""

    session_id: str
    permission: str
    """``edit``, ``bash``, ``external_directory`` and so on."""
    patterns: tuple[str, ...]
    """What exactly: paths, command lines."""
    always: tuple[str, ...]
    """What an answer of "always" would allow."""
    metadata: Document
    message_id: str | None = None
    call_id: str | None = None


class CommandExecuteInput(HookInput, frozen=True, kw_only=True):
    """A command of the user's was filled in, and is about to be sent as a prompt."""

    session_id: str
    command: str
    arguments: str


class ToolExecuteBeforeInput(HookInput, frozen=True, kw_only=True):
    """A tool is about to run."""

    session_id: str
    message_id: str
    call_id: str
    tool: str
    agent: str


class ToolExecuteAfterInput(ToolExecuteBeforeInput, frozen=True, kw_only=True):
    """A tool has run, and answered."""

    args: Document


class ShellEnvInput(HookInput, frozen=True, kw_only=True):
    """A command line is about to run."""

    cwd: str
    session_id: str | None = None
    call_id: str | None = None


class ToolDefinitionInput(ChatInput, frozen=True, kw_only=True):
    """A tool is about to be offered to a model."""

    tool: str


class SmallModelInput(HookInput, frozen=True, kw_only=True):
    """Side work needs a quick, cheap model."""

    session_id: str
    agent: str
    model: Model
    """That of the conversation."""


class CompactingInput(HookInput, frozen=True, kw_only=True):
    """A session is about to be summed up."""

    session_id: str
    model: Model
    auto: bool
    """Whether nobody asked for it."""


class TextCompleteInput(HookInput, frozen=True, kw_only=True):
    """A model has finished a text."""

    session_id: str
    message_id: str
    part_id: str


# -- what may be changed -----------------------------------------------------------------------------------------------


class HookOutput(Struct, kw_only=True):
    """What a hook may change."""

    def copied(self: OutputT) -> OutputT:
        """One to try things on."""
        return deepcopy(self)

    def check(self) -> None:
        """Raise a ``ValueError`` or ``TypeError`` that says what cannot be used."""
        fields = msgspec.structs.asdict(self)
        _plain(fields, "")
        try:
            msgspec.convert(fields, type(self))
        except msgspec.ValidationError as error:
            raise ValueError(str(error).replace("`", "").replace("$.", "")) from None


class ConfigOutput(HookOutput, kw_only=True):
    """The configuration, all layers merged, as ``opencode.json`` spells it."""

    document: dict[str, Any]


class ProviderOutput(HookOutput, kw_only=True):
    """Providers and models to know of, by the provider's id, as ``provider`` in ``opencode.json`` spells them."""

    providers: dict[str, dict[str, Any]] = {}


class ToolsOutput(HookOutput, kw_only=True):
    """Tools to offer beside the built-in ones; one of the same name takes their place."""

    tools: list[Tool] = []

    def copied(self) -> ToolsOutput:
        """A list of its own; the tools are the same."""
        return ToolsOutput(tools=list(self.tools))

    def check(self) -> None:
        """Each must look like a tool."""
        for tool in cast("list[Any]", self.tools):
            if missing := missing_attributes(tool):
                raise TypeError(f"{tool!r} is no tool: it has no {', '.join(missing)}")


class AuthOutput(HookOutput, kw_only=True):
    """What to show the provider."""

    key: str | None = None
    """``None`` leaves the key to the configuration, ``auth.json`` and the environment."""
    bearer: bool = False
    """Whether it is an access token rather than a key of the provider's own kind."""


class ChatMessageOutput(HookOutput, kw_only=True):
    """A prompt as it will be stored."""

    message: dict[str, Any]
    """The user message. ``id``, ``sessionID``, ``role`` and ``time`` stay as they are."""
    parts: list[dict[str, Any]]
    """Its parts. One that is added needs a ``type`` and what belongs to it; ids are given to it."""


class ChatParamsOutput(HookOutput, kw_only=True):
    """How a model is asked."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_output_tokens: int | None = None
    options: dict[str, Any] = {}
    """The provider's own settings, under the names OpenCode's configuration uses: ``reasoningEffort`` and so on."""


class ChatHeadersOutput(HookOutput, kw_only=True):
    """Headers of the request, beside those of the wire itself."""

    headers: dict[str, str] = {}

    def check(self) -> None:
        """Names and values that HTTP can carry, and nothing that would begin another header."""
        super().check()
        for name, value in self.headers.items():
            if not re.fullmatch(_HEADER, name) or not re.fullmatch(_HEADER_VALUE, value):
                raise ValueError(f"the header {name!r} cannot be sent: it is not made of printable ASCII")


class PermissionAskOutput(HookOutput, kw_only=True):
    """Whether a tool may."""

    status: Literal["ask", "allow", "deny"]
    """What the rules say, ``allow`` or ``ask``, until a hook says otherwise."""
    message: str = ""
    """With ``deny``: why, for the model."""


class CommandExecuteOutput(HookOutput, kw_only=True):
    """The parts of the prompt that a command becomes."""

    parts: list[dict[str, Any]]


class ToolExecuteBeforeOutput(HookOutput, kw_only=True):
    """What a tool is called with; this is what is stored, too."""

    args: dict[str, Any]


class ToolExecuteAfterOutput(HookOutput, kw_only=True):
    """What a tool answered."""

    title: str
    output: str
    """What the model reads. It is not shortened any more."""
    metadata: dict[str, Any] = {}
    attachments: list[dict[str, Any]] = []


class ShellEnvOutput(HookOutput, kw_only=True):
    """Variables to add to the environment of a command line."""

    env: dict[str, str] = {}

    def check(self) -> None:
        """What an operating system takes."""
        super().check()
        for name, value in self.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"the variable {name!r} cannot be set")


class ToolDefinitionOutput(HookOutput, kw_only=True):
    """A tool as the model reads of it."""

    description: str
    parameters: dict[str, Any]
    """The JSON schema of an object. The tool itself still takes what it took before."""

    def check(self) -> None:
        """A schema that every provider takes."""
        super().check()
        if self.parameters.get("type") != "object":
            raise ValueError('the parameters of a tool are an object: {"type": "object", "properties": {...}}')


class MessagesTransformOutput(HookOutput, kw_only=True):
    """The visible history, oldest first; what is stored stays as it is."""

    messages: list[StoredMessage]
    """Each has ``info``, the message, and ``parts``."""

    def check(self) -> None:
        """Messages, made of what JSON can say. What the model gets is made of them, and is valid whatever they hold."""
        for message in cast("list[Any]", self.messages):
            if not isinstance(message, StoredMessage):
                raise TypeError(f"{type(message).__name__} is no message: StoredMessage(info, parts) is")
            _plain({"info": message.info, "parts": message.parts}, "messages")
            msgspec.convert([message.info, *message.parts], list[dict[str, Any]])


class SystemTransformOutput(HookOutput, kw_only=True):
    """The system prompt, in blocks. Emptied, it is what it was."""

    system: list[str]


class SmallModelOutput(HookOutput, kw_only=True):
    """The model for side work."""

    model: str | None = None
    """``provider/model``; ``None`` leaves the choice to the configuration."""


class CompactingOutput(HookOutput, kw_only=True):
    """What a model is told to do when it sums up."""

    context: list[str] = []
    """Said after the usual prompt."""
    prompt: str | None = None
    """Said instead of it."""


class AutoContinueOutput(HookOutput, kw_only=True):
    """Whether a session that was summed up by itself goes on."""

    enabled: bool = True


class TextCompleteOutput(HookOutput, kw_only=True):
    """A text as it will be stored."""

    text: str


def _plain(value: Any, place: str) -> None:
    """Raise if ``value`` is not what JSON can say."""
    match value:
        case None | str() | int():
            return
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{place}: {value} is no number that JSON can say")
        case list() | tuple():
            for at, item in enumerate(cast("list[Any]", value)):
                _plain(item, f"{place}[{at}]")
        case dict():
            for key, item in cast("dict[Any, Any]", value).items():
                if not isinstance(key, str):
                    raise TypeError(f"{place}: the name {key!r} is no text")
                _plain(item, f"{place}.{key}" if place else key)
        case _:
            raise TypeError(f"{place}: {type(value).__name__} is nothing that JSON can say")
