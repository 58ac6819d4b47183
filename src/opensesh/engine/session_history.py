"""A session's visible messages in memory while it runs, and the parts that a provider rejects.

The messages are read once when a run begins and then kept up to date by the run, so that the cost of a step does not
grow with the history.

When a provider rejects a request because of one part of its history, :func:`rejected_part_ids` finds the part, and the
call is repeated without it. The answer records what was masked, so that no later run has to find out again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import AuthFailedError, ContextExceededError, ModelError
from ..models.request import Assistant, ToolResults
from ..records import EXTENSION_KEY, as_list, object_at
from .projection import Projection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..models.model import Model
    from ..models.request import ModelMessage
    from ..records import Document
    from ..storage.protocol import StoredMessage

USER_SHELL_PROMPT = "The following tool was executed by the user"
"""The text in place of a prompt, where the user ran a shell command."""
_UNFINISHED = (None, "tool-calls", "unknown")
"""Finish reasons of answers that need another step."""
_MEDIA = r"(?i)image|picture|pdf|document|media|file|base64|mime"
_REASONING = r"(?i)thinking|reasoning|signature|encrypted"


class History:
    """The messages a run works on, oldest first."""

    def __init__(self, messages: Iterable[StoredMessage]) -> None:
        self.messages: list[StoredMessage] = []
        self.last_prompt: StoredMessage | None = None
        self.last_answer: StoredMessage | None = None
        self.answers: list[StoredMessage] = []
        """The answers to the last prompt, by their ``parentID``; never by comparing ids."""
        self._projection: Projection | None = None
        self._replaced: tuple[Projection, Sequence[StoredMessage]] | None = None
        self._masked: dict[str, set[str]] = {}
        self.reset(messages)

    @property
    def masked(self) -> frozenset[str]:
        """Ids of the parts that are not sent because the provider of the last request rejected them."""
        return frozenset(self._masked.get(self._projection.model.provider_id, ()) if self._projection else ())

    def add(self, message: StoredMessage) -> None:
        """Append a message that is complete."""
        self.messages.append(message)
        self._note(message)
        if self._projection is not None:
            self._projection.add(message)

    def reset(self, messages: Iterable[StoredMessage]) -> None:
        """Replace all messages."""
        self.messages[:] = messages
        self._projection = self.last_prompt = self.last_answer = None
        self.answers = []
        for message in self.messages:
            self._note(message)

    def _note(self, message: StoredMessage) -> None:
        if message.info.get("role") == "user":
            self.last_prompt, self.answers = message, []
        elif message.info.get("role") == "assistant":
            self.last_answer = message
            if EXTENSION_KEY in message.info:
                masked = self._masked.setdefault(str(message.info.get("providerID")), set())
                masked.update(masked_part_ids(message.info))
            # Before OpenCode 0.15.14 an answer had no parentID; it answers the prompt before it.
            if self.last_prompt and message.info.get("parentID") in (None, self.last_prompt.info["id"]):
                self.answers.append(message)

    def unanswered_prompt(self) -> StoredMessage | None:
        """Return the last prompt, unless it has its outcome: an answer that needs no further step, or an error."""
        if self.last_prompt is not None and is_user_shell(self.last_prompt):
            return None
        last = self.answers[-1].info if self.answers else {}
        is_final = bool(object_at(last, EXTENSION_KEY).get("final"))
        is_answered = "error" in last or last.get("finish") not in _UNFINISHED or is_final
        return None if is_answered else self.last_prompt

    def conversation(
        self, model: Model, replacement: Sequence[StoredMessage] | None = None
    ) -> tuple[ModelMessage, ...]:
        """Return the conversation as ``model`` sees it, or that of ``replacement`` messages for this one request."""
        self._replaced = None
        masked = self._masked.get(model.provider_id, set[str]())
        if replacement is not None:
            self._replaced = Projection(model, replacement, masked), replacement
            return self._replaced[0].conversation()
        if self._projection is None or self._projection.model.ref != model.ref:
            self._projection = Projection(model, self.messages, masked)
        return self._projection.conversation()

    def origins(self) -> list[tuple[ModelMessage, StoredMessage]]:
        """Return what was sent last, each message with the stored one it comes from."""
        projection, shown = self._replaced or (self._projection, self.messages)
        messages = {str(message.info.get("id")): message for message in shown}
        return [(sent, messages[name]) for sent, name in (projection.origins() if projection else ())]

    def mask(self, part_ids: Iterable[str], provider_id: str) -> None:
        """Leave these parts out of what is sent to this provider from now on."""
        self._masked.setdefault(provider_id, set()).update(part_ids)
        self._projection = None


def is_user_shell(prompt: StoredMessage) -> bool:
    """Whether a prompt only stands for a shell command that the user ran, so that there is nothing to answer."""
    return len(prompt.parts) == 1 and prompt.parts[0].get("text") == USER_SHELL_PROMPT


def record_masked(info: Document, part_ids: list[str]) -> None:
    """Write into an answer's record that it was requested without these parts."""
    info[EXTENSION_KEY] = object_at(info, EXTENSION_KEY) | {"masked": [*masked_part_ids(info), *part_ids]}


def masked_part_ids(info: Document) -> list[str]:
    """Return the ids of the parts that an answer was requested without."""
    return [str(part_id) for part_id in as_list(object_at(info, EXTENSION_KEY).get("masked")) or ()]


def record_final(info: Document, *, keep_finish: bool) -> None:
    """Write into the record of an answer with tool calls that no next step sees their results. With ``keep_finish`` the
    finish stays that of the model, as in OpenCode."""
    if keep_finish:
        info[EXTENSION_KEY] = object_at(info, EXTENSION_KEY) | {"final": True}
    else:
        info["finish"] = "stop"


def rejected_part_ids(error: BaseException, history: History) -> list[str]:
    """Return the ids of the parts to mask before a retry; none if the error is not about the history."""
    if not isinstance(error, ModelError) or error.status != 400:
        return []
    if isinstance(error, (AuthFailedError, ContextExceededError)):
        return []
    text = f"{error.message} {error.body or ''}"
    reported = _messages_at_reported_index(text, history)
    if re.search(_REASONING, text):
        part_ids = _part_ids(reported, "reasoning") or _part_ids(history.messages, "reasoning")
    elif re.search(_MEDIA, text):
        part_ids = _media_part_ids(reported) or _media_part_ids(history.messages)
    elif history.last_prompt in reported:
        part_ids = []  # without the prompt there is nothing to ask
    else:
        part_ids = [str(part.get("id")) for message in reported for part in message.parts]
    return [part_id for part_id in dict.fromkeys(part_ids) if part_id not in history.masked]


def _messages_at_reported_index(text: str, history: History) -> list[StoredMessage]:
    """Return the messages at the index that an error names, counted as that provider does."""
    match = re.search(r"(messages\.|messages\[|contents\[)(\d+)", text)
    if match is None:
        return []
    messages: list[StoredMessage] = []
    position = 0 if match[1] == "messages[" else -1  # OpenAI also counts the system prompt
    before: ModelMessage | None = None
    for sent, message in history.origins():
        if match[1] == "messages.":  # Anthropic counts consecutive user messages as one, and tool results as the user's
            position += before is None or isinstance(sent, Assistant) != isinstance(before, Assistant)
        elif match[1] == "messages[":  # OpenAI counts every tool result; the last one stands for all
            position += len(sent.content) if isinstance(sent, ToolResults) else 1
        else:  # Gemini counts as we do
            position += 1
        before = sent
        if position == int(match[2]):
            messages.append(message)
    return messages


def _part_ids(messages: list[StoredMessage], kind: str) -> list[str]:
    return [str(part["id"]) for message in messages for part in message.parts if part.get("type") == kind]


def _media_part_ids(messages: list[StoredMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts if part.get("type") == "tool"]
    return _part_ids(messages, "file") + [str(part["id"]) for part in parts if part.get("state", {}).get("attachments")]
