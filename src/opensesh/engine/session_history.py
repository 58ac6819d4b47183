"""A session's visible messages in memory, while it runs.

Read once when a run begins, then kept up to date by the run itself, so that the cost of a step does not grow with the
length of the history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .masking import noted
from .projection import Projection
from .shell import is_by_user

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..models.model import Model
    from ..models.request import ModelMessage
    from ..storage.protocol import StoredMessage

_GOES_ON = (None, "tool-calls", "unknown")
"""Ways in which an answer ends that is not the last word."""


class History:
    """The messages a run works on, oldest first."""

    def __init__(self, messages: Iterable[StoredMessage]) -> None:
        self._messages: list[StoredMessage] = []
        self._projection: Projection | None = None
        self._instead: tuple[Projection, Sequence[StoredMessage]] | None = None
        self._masked: dict[str, set[str]] = {}
        self._prompt: StoredMessage | None = None
        self._answers: list[StoredMessage] = []
        self._last_answer: StoredMessage | None = None
        self.reset(messages)

    def __iter__(self) -> Iterator[StoredMessage]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def masked(self) -> frozenset[str]:
        """The parts that are not sent because the provider that was last asked refused them."""
        return frozenset(self._masked_for(self._projection.model) if self._projection else ())

    def add(self, message: StoredMessage) -> None:
        """Append a message that is complete."""
        self._messages.append(message)
        self._note(message)
        if self._projection is not None:
            self._projection.add(message)

    def reset(self, messages: Iterable[StoredMessage]) -> None:
        """Begin anew with another view of the session."""
        self._messages[:] = messages
        self._projection = None
        self._prompt = self._last_answer = None
        self._answers = []
        for message in self._messages:
            self._note(message)

    def _note(self, message: StoredMessage) -> None:
        match message.info.get("role"):
            case "user":
                self._prompt, self._answers = message, []
            case "assistant":
                self._last_answer = message
                self._mask(noted(message.info), str(message.info.get("providerID")))
                # Before 0.15.14 an answer did not say what it answers: what came before it.
                if self._prompt and message.info.get("parentID") in (None, self._prompt.info["id"]):
                    self._answers.append(message)
            case _:
                pass

    def last_user(self) -> StoredMessage | None:
        """The newest prompt."""
        return self._prompt

    def last_assistant(self) -> StoredMessage | None:
        """The newest answer."""
        return self._last_answer

    @property
    def answers(self) -> Sequence[StoredMessage]:
        """The answers to the newest prompt, by what they say they answer; never by comparing identifiers."""
        return self._answers

    @property
    def is_answered(self) -> bool:
        """Whether the newest prompt has had its outcome: an answer that is the last word, or an error."""
        if self._prompt is not None and is_by_user(self._prompt):
            return True
        last = self._answers[-1].info if self._answers else {}
        return "error" in last or last.get("finish") not in _GOES_ON

    def turns(self, model: Model, instead: Sequence[StoredMessage] | None = None) -> tuple[ModelMessage, ...]:
        """The conversation as ``model`` sees it; that of other messages, if it gets others to see for once."""
        self._instead = None
        if instead is not None:
            self._instead = Projection(model, instead, self._masked_for(model)), instead
            return self._instead[0].turns()
        if self._projection is None or self._projection.model.ref != model.ref:
            self._projection = Projection(model, self._messages, self._masked_for(model))
        return self._projection.turns()

    def origins(self) -> list[tuple[ModelMessage, StoredMessage]]:
        """The turns that were last sent, each with the message it comes from."""
        sent, shown = self._instead or (self._projection, self._messages)
        messages = {str(message.info.get("id")): message for message in shown}
        return [(turn, messages[name]) for turn, name in (sent.origins() if sent else ())]

    def mask(self, parts: Iterable[str], provider_id: str) -> None:
        """Leave these parts out of what is sent to this provider from now on."""
        self._mask(parts, provider_id)
        self._projection = None

    def _mask(self, parts: Iterable[str], provider_id: str) -> None:
        for part in parts:
            self._masked.setdefault(provider_id, set()).add(part)

    def _masked_for(self, model: Model) -> set[str]:
        return self._masked.get(model.provider_id, set())
