"""The context of a request: any request of a session, the next one or a past one, with the tokens of each piece, and
what is stored but not sent.

Nothing is sent, so no key is needed, nor a model that still exists. System prompts and tools are not stored: those of a
past request are shown as they would be today if opensesh ran the session. If OpenCode ran it, they are not known; of
them there is only what the provider counted beyond the conversation. Each piece names its source.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..errors import NotFoundError, OpenseshError, UsageError
from ..models.model import Model
from ..models.request import Assistant, File, Reasoning, System, Text, ToolResults, ToolUse, User, piece_tokens
from ..models.token_estimates import estimate
from ..records import as_whole, object_at
from ..storage.protocol import StoredMessage
from ..tools.filetimes import FileTimes
from .context_window import (
    compaction_part,
    is_kept,
    is_pruned,
    is_summary,
    unpruned,
    usable,
    visible,
)
from .projection import PRUNED
from .session_history import History, masked_part_ids
from .summary_text import summary_chunks, summary_prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..config import Agent, Config
    from ..models.request import ModelMessage
    from ..records import Document, Session
    from ..sessions import Sessions
    from .model_choice import Agents, Models
    from .step import Steps

    NewSteps = Callable[[Session, History, FileTimes, Callable[[StoredMessage], None]], Steps]

_BESIDE_CONVERSATION = ("system prompt", "instructions", "tools", "not stored")
_LEFT_OUT = re.compile(r"\[.* was left out: .*\]", re.DOTALL)


class Piece(NamedTuple):
    """One piece of a request."""

    part: str
    """What it is a piece of: ``system prompt``, ``instructions``, ``tools``, ``summary``, ``prompts``, ``answers``,
    ``reasoning``, ``calls``, ``results``, ``files`` or ``not stored``."""
    what: str
    tokens: int
    note: str = ""
    """``pruned``, ``kept`` (verbatim, beside a summary), ``left out`` (a file that this model does not take), or
    nothing."""
    message: str = ""
    source: Literal["stored", "today", "difference"] = "stored"
    """Of a past request: whether it was made from the session's records, is not stored and shown as it would be sent
    today, or is the provider's count less the conversation."""


class Omitted(NamedTuple):
    """Something that is stored but not sent."""

    why: str
    """``summarised``, ``pruned``, or ``masked`` (the provider rejected it)."""
    what: str
    tokens: int
    message: str = ""
    """The first message it concerns."""


class Inspection(NamedTuple):
    """The context of one request."""

    session: str
    message: str | None
    """The answer to it; ``None`` for the next request."""
    step: int
    """Its number among the session's model calls, from 1."""
    model: str
    agent: str
    window: int
    """Context limit of the model in tokens; 0 if it is not known."""
    usable_tokens: int
    """How many of them a conversation may fill."""
    pieces: list[Piece]
    omitted: list[Omitted]
    counted: int | None
    """What the provider counted for this request; for the next one, ``None``."""
    before: int | None
    """What the provider counted for the step before, its answer included."""
    notes: list[str]
    """What is not known, and other remarks."""

    @property
    def tokens(self) -> int:
        """Estimated size of the request."""
        return sum(piece.tokens for piece in self.pieces)

    @property
    def parts(self) -> dict[str, int]:
        """The tokens of each part, in the order in which they are sent."""
        sums: dict[str, int] = {}
        for piece in self.pieces:
            sums[piece.part] = sums.get(piece.part, 0) + piece.tokens
        return sums

    def growth(self, before: Inspection) -> dict[str, int]:
        """Return the tokens that each part has more than in the step before, for the parts that are known of both.

        What another program sent beside the conversation is one figure, which does not compare with our own system
        prompt, instructions and tools.
        """
        parts = list(dict.fromkeys([*self.parts, *before.parts]))
        if ("system prompt" in self.parts) != ("system prompt" in before.parts):
            parts = [part for part in parts if part not in _BESIDE_CONVERSATION]
        return {part: self.parts.get(part, 0) - before.parts.get(part, 0) for part in parts}

    @property
    def sources(self) -> dict[str, str]:
        """The source of each part."""
        return {piece.part: piece.source for piece in self.pieces}

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "sessionID": self.session,
            "messageID": self.message,
            "step": self.step,
            "model": self.model,
            "agent": self.agent,
            "window": self.window or None,
            "room": self.usable_tokens or None,
            "tokens": {"estimated": self.tokens, "counted": self.counted, "before": self.before},
            "parts": self.parts,
            "sources": self.sources,
            "pieces": [piece._asdict() for piece in self.pieces],
            "omitted": [omitted._asdict() for omitted in self.omitted],
            "notes": self.notes,
        }


class Inspector(NamedTuple):
    """Inspects the requests of sessions."""

    sessions: Sessions
    config: Config
    agents: Agents
    models: Models
    new_steps: NewSteps

    def inspect(self, session: Session, step: str | None = None) -> Inspection:
        """Inspect the next request of a session, or the one of ``step``: a number from 1, or the id of a message. A
        prompt stands for its first answer."""
        messages = list(self.sessions.messages(session.id))
        if step is None:
            return _RequestInspection(self, session, messages, len(messages)).inspection()
        answers = [at for at, message in enumerate(messages) if message.info.get("role") == "assistant"]
        if step.isdecimal():
            if not 1 <= int(step) <= len(answers):
                raise NotFoundError(f"there is no step {step}; the session has {len(answers)}", step=step)
            return _RequestInspection(self, session, messages, answers[int(step) - 1]).inspection()
        message_ids = [str(message.info["id"]) for message in messages]
        matches = [at for at, message_id in enumerate(message_ids) if message_id.endswith(step)]
        matches = matches or [at for at, message_id in enumerate(message_ids) if message_id.startswith(step)]
        if len(matches) != 1:
            number = f"{len(matches)} messages" if matches else "no message"
            raise NotFoundError(f"{number} of the session match {step!r}", step=step)
        after = [at for at in answers if at >= matches[0]]
        if not after:
            raise UsageError(f"the prompt {step} has no answer yet; without --step the next request is shown")
        return _RequestInspection(self, session, messages, after[0]).inspection()


class _RequestInspection:
    """The inspection of one request."""

    def __init__(self, inspector: Inspector, session: Session, messages: list[StoredMessage], at: int) -> None:
        self._inspector = inspector
        self._session = session
        self._answer = messages[at].info if at < len(messages) else None
        self._number = 1 + sum(message.info.get("role") == "assistant" for message in messages[:at])
        self._before = messages[:at]
        if self._answer is not None:  # what was pruned later was still sent
            created = self._answer["time"]["created"]
            self._before = [
                StoredMessage(message.info, [unpruned(part, since=created) for part in message.parts])
                for message in self._before
            ]
        self._view = visible(self._before)
        self._notes: list[str] = []

    def inspection(self) -> Inspection:
        answer, prompt = self._answer or {}, self._prompt()
        models, agents = self._inspector.models, self._inspector.agents
        reference = answer or object_at(prompt, "model")
        provider_id, model_id = str(reference.get("providerID") or ""), str(reference.get("modelID") or "")
        try:
            model = models.catalogue.model(provider_id, model_id) if model_id else models.default()
        except OpenseshError as error:
            self._notes.append(error.message)
            known = models.catalogue.known(provider_id, model_id)
            model = known or Model(id=model_id or "unknown", provider_id=provider_id or "unknown")
        try:
            agent = agents.get(answer.get("agent") or answer.get("mode") or prompt.get("agent"))
        except OpenseshError as error:
            self._notes.append(error.message)
            agent = agents.get()
        usable_tokens = usable(model, self._inspector.config)
        if not usable_tokens:
            self._notes.append(f"The context limit of {model.ref} is not known.")
        if not os.path.isdir(self._session.directory):
            self._notes.append(f"The folder {self._session.directory} does not exist, nor do its instruction files.")
        creator = self._session.version
        if self._answer is None or creator.startswith("opensesh"):
            pieces = self._summary_pieces(model, agent) if answer.get("summary") else self._pieces(model, agent)
            if self._answer is not None:
                self._notes.append("System prompts and tools are not stored: they are shown as they would be today.")
        else:
            pieces = self._stored_pieces(model, self._answer, f"OpenCode {creator}".strip())
        answers = [message.info for message in self._before if message.info.get("role") == "assistant"]
        return Inspection(
            session=self._session.id,
            message=answer.get("id"),
            step=self._number,
            model=model.ref,
            agent=str(answer.get("agent") or answer.get("mode") or agent.name),
            window=model.limit.context,
            usable_tokens=usable_tokens,
            pieces=pieces,
            omitted=list(self._omitted(model)),
            counted=_counted_tokens(answer),
            before=_counted_tokens(answers[-1], with_answer=True) if answers else None,
            notes=self._notes,
        )

    def _prompt(self) -> Document:
        """Return the prompt that the request answers."""
        prompts = [message.info for message in self._before if message.info.get("role") == "user"]
        parent_id = (self._answer or {}).get("parentID")
        named = [info for info in prompts if info["id"] == parent_id]
        return (named or prompts or [{}])[-1]

    def _pieces(self, model: Model, agent: Agent) -> list[Piece]:
        history = History(self._view)
        if self._answer is not None:
            history.mask(masked_part_ids(self._answer), model.provider_id)
        steps = self._inspector.new_steps(self._session, history, FileTimes(required=False), lambda message: None)
        prompt = self._prompt() | {"sessionID": self._session.id}
        number = 1 + sum(message.info.get("parentID") == prompt.get("id") for message in self._before)
        request = steps.preview_request(prompt, number, agent, model)
        system = sum(estimate(sent.text) for sent in request.messages if isinstance(sent, System))
        instructions = [Piece("instructions", file.source, estimate(file.text)) for file in steps.instructions]
        pieces = [Piece("system prompt", "", max(system - sum(piece.tokens for piece in instructions), 0))]
        pieces += instructions
        pieces += [Piece("tools", spec.name, spec.tokens) for spec in request.tools]
        if self._answer is not None:
            pieces = [piece._replace(source="today") for piece in pieces]
        origins = {id(sent): message for sent, message in history.origins()}
        conversation = history.conversation(model)
        for sent, unmarked in zip(request.messages[1:], conversation, strict=False):
            pieces += self._message_pieces(sent, origins.get(id(unmarked)))
        # After an answer the next request begins with a prompt of the user: no note of ours ends it.
        if self._answer is None and history.unanswered_prompt() is None:
            return pieces
        notes = request.messages[1 + len(conversation) :]
        return pieces + [piece for note in notes for piece in self._message_pieces(note, None)]

    def _stored_pieces(self, model: Model, answer: Document, creator: str) -> list[Piece]:
        """Return what is known of a request that another program sent: the conversation, and the rest as one figure."""
        self._notes.append(
            f"{creator} created this session, and the records do not say what else it sent: its system prompt, tools "
            "and instruction files are not stored. The conversation is made from the stored messages."
        )
        history = History(self._view)
        origins = {id(sent): message for sent, message in history.origins()}
        pieces = [
            piece for sent in history.conversation(model) for piece in self._message_pieces(sent, origins.get(id(sent)))
        ]
        counted = _counted_tokens(answer)
        if counted is None:
            return pieces
        rest = counted - sum(piece.tokens for piece in pieces)
        what = "what the provider counted beyond the conversation"
        return [Piece("not stored", what, max(rest, 0), source="difference"), *pieces]

    def _message_pieces(self, sent: ModelMessage, message: StoredMessage | None) -> list[Piece]:
        message_id = str(message.info["id"]) if message else ""
        pieces: list[Piece] = []
        match sent:
            case System():
                pass
            case User(content=content):
                pieces = [_piece("prompts", piece) for piece in content]
            case Assistant(content=content):
                pieces = [_piece("answers", piece) for piece in content]
            case ToolResults(content=results):
                for result in results:
                    note = "pruned" if result.output == (Text(text=PRUNED),) else ""
                    texts = [piece for piece in result.output if isinstance(piece, Text)]
                    pieces.append(Piece("results", result.name, sum(map(piece_tokens, texts)), note))
                    pieces += [_piece("results", piece) for piece in result.output if isinstance(piece, File)]
        if message is not None and (is_summary(message.info) or compaction_part(message)):
            pieces = [piece._replace(part="summary") for piece in pieces]
        elif message is not None and is_kept(self._view, message):
            pieces = [piece._replace(note=piece.note or "kept") for piece in pieces]
        return [piece._replace(message=message_id) for piece in pieces]

    def _summary_pieces(self, model: Model, agent: Agent) -> list[Piece]:
        """Return what was sent for a summary: the conversation as text, in one or several requests."""
        chunks = summary_chunks(visible(self._before), model, self._inspector.config)
        pieces = [
            Piece("system prompt", "", estimate(agent.prompt or ""), source="today"),
            Piece("prompts", "what to write", estimate(summary_prompt()), source="today"),
        ]
        pieces += [
            Piece("answers", f"the conversation as text, {number} of {len(chunks)}", estimate(text))
            for number, text in enumerate(chunks, 1)
        ]
        if len(chunks) > 1:
            self._notes.append(f"It took {len(chunks)} requests, each with the summary so far.")
        return pieces

    def _omitted(self, model: Model) -> Iterator[Omitted]:
        shown = {id(message) for message in self._view}
        compacted = [message for message in self._before if id(message) not in shown]
        if compacted:
            size = sum(_part_tokens(part) for message in compacted for part in message.parts)
            yield Omitted("summarised", f"{len(compacted)} messages", size, str(compacted[0].info["id"]))
        masked = set(masked_part_ids(self._answer or {}))
        for message in self._view:
            if message.info.get("providerID") == model.provider_id:
                masked.update(masked_part_ids(message.info))
        for message in self._view:
            for part in message.parts:
                reason = "masked" if part.get("id") in masked else "pruned" if is_pruned(part) else None
                if reason is None:
                    continue
                match part.get("type"):
                    case "tool":
                        title = object_at(part, "state").get("title") or ""
                        name = f"{part.get('tool')} {title}".strip()
                    case "file":
                        name = f"{part.get('filename') or ''} {part.get('mime')}".strip()
                    case kind:
                        name = f"{kind}: {_beginning(str(part.get('text', '')))}"
                yield Omitted(reason, name, _part_tokens(part), str(message.info["id"]))


def _piece(part: str, piece: Text | File | Reasoning | ToolUse) -> Piece:
    size = piece_tokens(piece)
    match piece:
        case Text(text=text):
            return Piece(part, _beginning(text), size, "left out" if _LEFT_OUT.fullmatch(text) else "")
        case Reasoning(text=text):
            return Piece("reasoning", _beginning(text), size)
        case ToolUse(name=name):
            return Piece("calls", name, size)
        case File(mime=mime, filename=filename):
            return Piece("files", f"{filename or ''} {mime}".strip(), size)


def _counted_tokens(info: Document, *, with_answer: bool = False) -> int | None:
    """Return the provider's count of a request, with its answer if asked for."""
    tokens = object_at(info, "tokens")
    cache = object_at(tokens, "cache")
    sent = as_whole(tokens.get("input")) + as_whole(cache.get("read")) + as_whole(cache.get("write"))
    answered = as_whole(tokens.get("output")) + as_whole(tokens.get("reasoning"))
    return (sent + (answered if with_answer else 0)) or None


def _part_tokens(part: Document) -> int:
    state = object_at(part, "state")
    if part.get("type") == "file":
        return piece_tokens(File(mime=str(part.get("mime")), url=str(part.get("url"))))
    return sum(estimate(str(text)) for text in (part.get("text"), state.get("input"), state.get("output")) if text)


def _beginning(text: str) -> str:
    return " ".join(text[:400].split())[:80]
