"""Projection of records to a model request: what a model sees of a session.

A pure function of a message and the model it is for. For every history the result is a valid conversation:
every tool call is followed by exactly one result, under an id that every provider accepts and no other call has; no
content is empty, no text holds a lone surrogate, no file is one that the model cannot read, and reasoning that another
model signed is left out. A note replaces what had to be left out.
"""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from ..errors import RecordError
from ..models.request import (
    Assistant,
    File,
    ModelMessage,
    Reasoning,
    System,
    Text,
    ToolResults,
    ToolUse,
    ToolUseResult,
    User,
)
from ..records import (
    EXTENSION_KEY,
    AssistantMessage,
    CompactionPart,
    Completed,
    Failed,
    FilePart,
    MessageAbortedError,
    Part,
    ReasoningPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    UserMessage,
    as_list,
    object_at,
    read_message,
    read_part,
    without_surrogates,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ..models.model import Model
    from ..storage.protocol import StoredMessage

COMPACTION_PROMPT = "What did we do so far?"
SUBTASK_PROMPT = "The following tool was executed by the user"
PRUNED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
MASKED = "[Left out: the provider would not take this part of the history]"
_ATTACHED = "Attached image(s) from tool result:"
_OPENING = "(The beginning of this conversation is not available.)"
_TEXT_MIMES = ("text/plain", "application/x-directory")
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_MEDIA_IN_RESULTS = ("@ai-sdk/anthropic", "@ai-sdk/openai", "@ai-sdk/amazon-bedrock", "@ai-sdk/google-vertex/anthropic")
_MAX_FILE_BYTES = 20 * 1024 * 1024
_MAX_CLAUDE_IMAGE_BYTES = 5 * 1024 * 1024
_IMAGES = ("image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp")
_GEMINI_IMAGES = ("image/heic", "image/heif")
_SIGNATURES = {
    "image/png": (b"\x89PNG",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/jpg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF8",),
    "image/webp": (b"RIFF",),
    "application/pdf": (b"%PDF", b"\xef\xbb\xbf%PDF"),
}


class Projection:
    """A conversation as one model sees it. Adding a message costs the same however many there are."""

    def __init__(self, model: Model, messages: Iterable[StoredMessage] = (), masked: Collection[str] = ()) -> None:
        """``masked`` are the ids of parts that the provider has rejected."""
        self.model = model
        self._masked = masked
        self._conversation: list[ModelMessage] = []
        self._message_ids: list[str] = []
        self._call_ids: set[str] = set()
        for message in messages:
            self.add(message)

    def add(self, message: StoredMessage) -> None:
        """Append a message that will not change any more."""
        added = list(model_messages(message, self.model, self._masked))
        if added and not self._conversation and not isinstance(added[0], User):
            added.insert(0, User(content=(Text(text=_OPENING),)))
        for sent in _with_unique_call_ids(added, self._call_ids):
            last = self._conversation[-1] if self._conversation else None
            if isinstance(sent, Assistant) and isinstance(last, Assistant):
                # An answer that was interrupted and continued. Some providers reject two answers in a row.
                self._conversation[-1] = Assistant(content=last.content + sent.content)
            else:
                self._conversation.append(sent)
                self._message_ids.append(str(message.info.get("id")))

    def conversation(self) -> tuple[ModelMessage, ...]:
        """Return the conversation so far. It begins with the user, and no call id occurs twice."""
        return tuple(self._conversation) or (User(content=(Text(text=_OPENING),)),)

    def origins(self) -> list[tuple[ModelMessage, str]]:
        """Return each message of the conversation with the id of the stored one it comes from."""
        return list(zip(self._conversation, self._message_ids, strict=True))


def model_messages(message: StoredMessage, model: Model, masked: Collection[str] = ()) -> tuple[ModelMessage, ...]:
    """Return one stored message as the model sees it, without the parts whose ids are ``masked``."""
    try:
        info = read_message(message.info)
    except RecordError:
        return ()
    parts: list[Part] = []
    for document in message.parts:
        try:
            part = read_part(document)
        except RecordError:
            continue
        if part.id not in masked:
            parts.append(part)
    if isinstance(info, UserMessage):
        left_out = masked and any(str(part.get("id")) in masked for part in message.parts)
        content: list[Text | File] = [Text(text=MASKED)] if left_out else []
        for part in parts:
            content += _user_content(part, model)
        return (User(content=tuple(content)),) if content else ()
    try:
        is_sent = info.error is None or isinstance(info.failure, MessageAbortedError)
    except RecordError:
        is_sent = False
    return tuple(_answer(info, parts, model)) if is_sent else ()


def mark_cache_points(messages: Sequence[ModelMessage], model: Model) -> tuple[ModelMessage, ...]:
    """Set cache points after the first two system messages and the last two others, for the models that use them.

    ``messages`` begin with the system messages, if there are any.
    """
    names = f"{model.provider_id} {model.id} {model.wire_id} {model.npm}".lower()
    if "anthropic" not in names and "claude" not in names:
        return tuple(messages)
    marked = list(messages)
    for at in range(min(2, len(messages))):
        if isinstance(messages[at], System):
            marked[at] = replace(messages[at], cache=True)
    for at in range(max(0, len(messages) - 2), len(messages)):
        if not isinstance(messages[at], System):
            marked[at] = replace(messages[at], cache=True)
    return tuple(marked)


def _user_content(part: Part, model: Model) -> list[Text | File]:
    match part:
        case TextPart(text=text) if not part.ignored and text.strip():
            text, extension = without_surrogates(text), object_at(part.metadata or {}, EXTENSION_KEY)
            if extension.get("steering"):  # the user sent it while the model was working
                text = (
                    f"<system-reminder>\nThe user sent this while you were working:\n{text}\n\n"
                    "Take it into account, then go on with the task.\n</system-reminder>"
                )
            texts = [text, *(as_list(extension.get("reminders")) or ())]
            return [Text(text=str(text)) for text in texts]
        case FilePart() if part.mime not in _TEXT_MIMES:
            return [_file(part.mime, part.url, part.filename, model)]
        case CompactionPart():
            return [Text(text=COMPACTION_PROMPT)]
        case SubtaskPart():
            return [Text(text=SUBTASK_PROMPT)]
        case _:
            return []


def _answer(info: AssistantMessage, parts: Sequence[Part], model: Model) -> Iterator[ModelMessage]:
    """Yield the steps of an answer, each as what the model wrote and the results of its tool calls."""
    same_model = f"{info.provider_id}/{info.model_id}" == model.ref
    files: list[File] = []
    content: list[Text | Reasoning | ToolUse] = []
    results: list[ToolUseResult] = []
    for part in parts:
        match part:
            case StepStartPart():
                yield from _step(content, results)
                content, results = [], []
            case TextPart(text=text) if text.strip():
                content.append(
                    Text(
                        text=without_surrogates(text),
                        metadata=without_surrogates(part.metadata) if same_model else None,
                    )
                )
            case ReasoningPart() if same_model and (part.text.strip() or part.metadata):
                content.append(
                    Reasoning(text=without_surrogates(part.text), metadata=without_surrogates(part.metadata))
                )
            case ToolPart():
                call_id = _NOT_IN_IDS.sub("_", part.call_id or part.id)[:40] or "call"
                name = _NOT_IN_IDS.sub("_", part.tool) or "invalid"
                name = (f"_{name}" if name[0] in "0123456789-" else name)[:64]
                metadata = without_surrogates(part.metadata) if same_model else None
                output, failed = _tool_output(part, model, files)
                content.append(
                    ToolUse(id=call_id, name=name, input=without_surrogates(part.state.input), metadata=metadata)
                )
                results.append(ToolUseResult(id=call_id, name=name, output=output, failed=failed, metadata=metadata))
            case _:
                pass
    yield from _step(content, results)
    if files:
        yield User(content=(Text(text=_ATTACHED), *files))


def _step(content: list[Text | Reasoning | ToolUse], results: list[ToolUseResult]) -> Iterator[Assistant | ToolResults]:
    # The providers that sign reasoning reject it at the end of a message.
    while content and isinstance(content[-1], Reasoning):
        content.pop()
    if content:
        yield Assistant(content=tuple(content))
    if results:
        yield ToolResults(content=tuple(results))


def _tool_output(part: ToolPart, model: Model, files: list[File]) -> tuple[tuple[Text | File, ...], bool]:
    """Return what a tool call returned, and whether it failed. Files that a result of this model cannot hold are
    appended to ``files``."""
    state = part.state
    if isinstance(state, Failed):
        return (Text(text=without_surrogates(state.error).strip() or "Error"),), True
    if not isinstance(state, Completed):
        return (Text(text=INTERRUPTED),), True
    if state.time.compacted:
        return (Text(text=PRUNED),), False
    wire = model.wire_id.lower()
    is_gemini_3 = model.npm == "@ai-sdk/google" and "gemini-3" in wire and "gemini-2" not in wire
    takes_media = is_gemini_3 or model.npm in _MEDIA_IN_RESULTS
    attachments: list[Text | File] = []
    for document in state.attachments or ():
        mime, url = str(document.get("mime", "")), str(document.get("url", ""))
        if not url.startswith("data:") or "," not in url:
            continue
        file = _file(mime, url, document.get("filename"), model)
        is_media = isinstance(file, File) and (file.mime.startswith("image/") or file.mime == "application/pdf")
        if isinstance(file, File) and is_media and not takes_media:
            files.append(replace(file, filename=None))
        else:
            attachments.append(file)
    text = (Text(text=without_surrogates(state.output)),) if state.output.strip() or not attachments else ()
    return (*text, *attachments), False


def _with_unique_call_ids(messages: list[ModelMessage], used: set[str]) -> list[ModelMessage]:
    """Rename the calls whose id was used before, by a fork or by a server that counts from one each time."""
    for at, sent in enumerate(messages):
        if not isinstance(sent, Assistant):
            continue
        calls = [piece for piece in sent.content if isinstance(piece, ToolUse)]
        call_ids = {call.id for call in calls}
        if call_ids & used or len(call_ids) < len(calls):
            results = cast("ToolResults", messages[at + 1])
            fresh: list[str] = []
            for call in calls:
                name, number = call.id, 1
                while name in used or name in fresh:
                    number += 1
                    name = f"{call.id[:32]}_{number}"
                fresh.append(name)
            names = iter(fresh)
            content = tuple(
                replace(piece, id=next(names)) if isinstance(piece, ToolUse) else piece for piece in sent.content
            )
            renamed = (replace(result, id=name) for result, name in zip(results.content, fresh, strict=True))
            messages[at : at + 2] = [replace(sent, content=content), replace(results, content=tuple(renamed))]
            call_ids = set(fresh)
        used |= call_ids
    return messages


# -- files -------------------------------------------------------------------------------------------------------------


def _file(mime: str, url: str, filename: object, model: Model) -> Text | File:
    name = without_surrogates(filename) if isinstance(filename, str) and filename else None
    mime = without_surrogates(mime).partition(";")[0].strip().lower()
    problem = file_problem(mime, url, model)
    if problem:
        return Text(text=f"[{name or mime or 'A file'} was left out: {problem}]")
    return File(mime=mime, url=url, filename=name)


def file_problem(mime: str, url: str, model: Model) -> str | None:
    """Return why this file cannot be sent to this model; ``None`` if it can."""
    family, wire = mime.partition("/")[0], model.wire_id.lower()
    kind = "pdf" if mime == "application/pdf" else family if family in ("image", "audio", "video") else None
    if kind is not None and kind not in model.capabilities.input:
        return f"this model does not take {'a PDF' if kind == 'pdf' else kind} as input"
    if kind == "image":
        is_accepted = mime in _IMAGES or (mime in _GEMINI_IMAGES and "gemini" in wire)
    else:  # of documents only text, but the adapter for Bedrock converts more
        is_accepted = kind is not None or mime.startswith("text/") or model.npm == "@ai-sdk/amazon-bedrock"
    if not is_accepted:
        return "this model does not take files of its type"
    if not url.startswith("data:"):
        return None if url.isascii() and url.startswith(("http://", "https://")) else "it is not where it was"
    limit = _MAX_CLAUDE_IMAGE_BYTES if kind == "image" and "claude" in wire else _MAX_FILE_BYTES
    return _content_problem(mime, url, limit)


def _content_problem(mime: str, url: str, limit: int) -> str | None:
    """Return what is wrong with the content of a data URL."""
    head, _, data = url.partition(",")
    if not data:
        return "it is empty"
    if not head.endswith(";base64"):
        return "its content is not base64"
    try:
        content = binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return "its content is damaged"
    signatures = _SIGNATURES.get(mime)
    if signatures and not content.startswith(signatures):
        return f"it is not really {'image/jpeg' if mime == 'image/jpg' else mime}"
    return f"it is larger than {limit // 1024 // 1024} MB" if len(content) > limit else None
