"""What a model gets to see: any request of a session, the next one or a past one, taken apart, with the tokens of each
piece, and what is stored but not sent.

Nobody is asked, so no key is needed, nor a model that still exists. What cannot be known is said.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config import system_instructions
from ..errors import NotFoundError, OpenseshError, UsageError
from ..models.model import Model
from ..models.request import Assistant, File, Reasoning, System, Text, ToolResults, ToolUse, User
from ..records import as_object
from ..storage.protocol import StoredMessage
from ..tools.filetimes import FileTimes
from .compaction import question, summary_chunks
from .masking import noted
from .projection import PRUNED
from .pruning import is_pruned, unmarked
from .session_history import History
from .step import Steps
from .tokens import estimate, piece_tokens, tool_tokens
from .window import compaction_part, is_kept, is_summary, usable, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..config import Agent
    from ..models.request import ModelMessage, Request
    from ..records import Document, Session
    from .components import Runtime

_LEFT_OUT = re.compile(r"\[.* was left out: .*\]", re.DOTALL)


class Piece(NamedTuple):
    """One thing that is sent."""

    part: str
    """Of what it is a piece: ``system prompt``, ``instructions``, ``tools``, ``summary``, ``prompts``, ``answers``,
    ``reasoning``, ``calls``, ``results`` or ``files``."""
    what: str
    tokens: int
    note: str = ""
    """``pruned``, ``kept`` (word for word, beside a summary), ``left out`` (a file that this model does not take), or
    nothing."""
    message: str = ""


class Omitted(NamedTuple):
    """Something that is stored and not sent."""

    why: str
    """``summarised``, ``pruned``, or ``masked`` (the provider refused it)."""
    what: str
    tokens: int
    message: str = ""
    """The first message it concerns."""


class Inspection(NamedTuple):
    """A request, taken apart."""

    session: str
    message: str | None
    """The answer that it led to; ``None`` for the next one."""
    step: int
    """Which one it is, of all the session's model calls, from 1."""
    model: str
    agent: str
    window: int
    """How many tokens the model holds; 0 where nobody knows."""
    room: int
    """How many of them a conversation may fill."""
    pieces: list[Piece]
    omitted: list[Omitted]
    counted: int | None
    """What the provider counted for this request; for the next one, ``None``."""
    before: int | None
    """What the provider counted for the step before, its answer included."""
    notes: list[str]
    """What is not known, and what else one should know."""

    @property
    def tokens(self) -> int:
        """All of it, estimated."""
        return sum(piece.tokens for piece in self.pieces)

    @property
    def parts(self) -> dict[str, int]:
        """The tokens of each part, in the order in which they are sent."""
        sums: dict[str, int] = {}
        for piece in self.pieces:
            sums[piece.part] = sums.get(piece.part, 0) + piece.tokens
        return sums

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "sessionID": self.session,
            "messageID": self.message,
            "step": self.step,
            "model": self.model,
            "agent": self.agent,
            "window": self.window or None,
            "room": self.room or None,
            "tokens": {"estimated": self.tokens, "counted": self.counted, "before": self.before},
            "parts": self.parts,
            "pieces": [piece._asdict() for piece in self.pieces],
            "omitted": [each._asdict() for each in self.omitted],
            "notes": self.notes,
        }


def inspect(runtime: Runtime, session: Session, step: str | None = None) -> Inspection:
    """The next request of a session; or the one of ``step``: a number from 1, or the id of a message."""
    everything = list(runtime.sessions.messages(session.id))
    at = _place(everything, step) if step is not None else len(everything)
    return _Look(runtime, session, everything, at).inspection()


def _place(messages: Sequence[StoredMessage], step: str) -> int:
    """Where the answer stands that a step is named by; a prompt stands for the first answer to it."""
    answers = [at for at, message in enumerate(messages) if message.info.get("role") == "assistant"]
    if step.isdecimal():
        if not 1 <= int(step) <= len(answers):
            raise NotFoundError(f"there is no step {step}; the session has {len(answers)}", step=step)
        return answers[int(step) - 1]
    named = [at for at, message in enumerate(messages) if str(message.info["id"]).endswith(step)]
    named = named or [at for at, message in enumerate(messages) if str(message.info["id"]).startswith(step)]
    if len(named) != 1:
        found = f"{len(named)} messages of the session are" if named else "no message of the session is"
        raise NotFoundError(f"{found} called {step!r}", step=step)
    after = [at for at in answers if at >= named[0]]
    if not after:
        raise UsageError(f"the prompt {step} has no answer yet; without --step the next request is shown")
    return after[0]


class _Look:
    """One request of one session."""

    def __init__(self, runtime: Runtime, session: Session, everything: list[StoredMessage], at: int) -> None:
        self._runtime = runtime
        self._session = session
        self._answer = everything[at].info if at < len(everything) else None
        self._number = 1 + sum(each.info.get("role") == "assistant" for each in everything[:at])
        self._before = everything[:at] if self._answer is None else _as_it_was(everything[:at], self._answer)
        self._view = visible(self._before)
        self._notes: list[str] = []

    def inspection(self) -> Inspection:
        model, agent = self._model(), self._agent()
        room = usable(model, self._runtime.config)
        if not room:
            self._notes.append(f"How much {model.ref} holds is not known.")
        if not os.path.isdir(self._session.directory):
            self._notes.append(f"The folder {self._session.directory} is not here, nor are its instruction files.")
        if self._answer is not None:
            self._notes.append("System prompts and tools are not stored: they are shown as they would be today.")
        answer = self._answer or {}
        answers = [each.info for each in self._before if each.info.get("role") == "assistant"]
        return Inspection(
            session=self._session.id,
            message=answer.get("id"),
            step=self._number,
            model=model.ref,
            agent=agent.name,
            window=model.limit.context,
            room=room,
            pieces=self._summing_up(model, agent) if answer.get("summary") else self._pieces(model, agent),
            omitted=list(self._omitted(model)),
            counted=_counted(answer),
            before=_counted(answers[-1], answer=True) if answers else None,
            notes=self._notes,
        )

    def _prompt(self) -> Document:
        """The prompt that the request answers."""
        prompts = [each.info for each in self._before if each.info.get("role") == "user"]
        wanted = (self._answer or {}).get("parentID")
        named = [info for info in prompts if info["id"] == wanted]
        return (named or prompts or [{}])[-1]

    def _model(self) -> Model:
        asked = self._answer or as_object(self._prompt().get("model")) or {}
        provider_id, model_id = str(asked.get("providerID") or ""), str(asked.get("modelID") or "")
        try:
            return self._runtime.model(provider_id, model_id) if model_id else self._runtime.default_model()
        except OpenseshError as error:
            self._notes.append(error.message)
        known = self._runtime.catalogue.known(provider_id, model_id)
        return known or Model(id=model_id or "unknown", provider_id=provider_id or "unknown")

    def _agent(self) -> Agent:
        answer = self._answer or {}
        name = answer.get("agent") or answer.get("mode") or self._prompt().get("agent")
        try:
            return self._runtime.agent(name)
        except OpenseshError as error:
            self._notes.append(error.message)
            return self._runtime.agent(None)

    def _pieces(self, model: Model, agent: Agent) -> list[Piece]:
        history = History(self._view)
        if self._answer is not None:
            history.mask(noted(self._answer), model.provider_id)
        files = FileTimes(required=False)
        steps = Steps(self._runtime, self._session, history, files, lambda message: None)
        prompt = self._prompt() | {"sessionID": self._session.id}
        number = 1 + sum(each.info.get("parentID") == prompt.get("id") for each in self._before)
        request = steps.sketch(prompt, number, agent, model)
        origins = {id(turn): message for turn, message in history.origins()}
        found = list(self._of_system(request))
        found += [Piece("tools", spec.name, tool_tokens(spec)) for spec in request.tools]
        for turn, whole in zip(request.messages[1:], history.turns(model), strict=False):
            message = origins.get(id(whole))
            found += self._of_turn(turn, message)
        # Whoever was answered will speak first: nothing is said at the end of a request that is yet to come.
        waits = self._answer is None and history.is_answered
        extra = () if waits else request.messages[1 + len(history.turns(model)) :]
        return found + [piece for turn in extra for piece in self._of_turn(turn, None)]

    def _of_system(self, request: Request) -> Iterator[Piece]:
        whole = sum(estimate(turn.text) for turn in request.messages if isinstance(turn, System))
        instructions = [
            Piece("instructions", each.source, estimate(each.text))
            for each in system_instructions(self._runtime.config)
        ]
        yield Piece("system prompt", "", max(whole - sum(piece.tokens for piece in instructions), 0))
        yield from instructions

    def _of_turn(self, turn: ModelMessage, message: StoredMessage | None) -> list[Piece]:
        name = str(message.info["id"]) if message else ""
        found = list(_said(turn))
        if message is not None and (is_summary(message.info) or compaction_part(message)):
            found = [piece._replace(part="summary") for piece in found]
        elif message is not None and is_kept(self._view, message):
            found = [piece._replace(note=piece.note or "kept") for piece in found]
        return [piece._replace(message=name) for piece in found]

    def _summing_up(self, model: Model, agent: Agent) -> list[Piece]:
        """What was sent to have the session summed up: as text, in as many requests as it took."""
        asked = estimate(question())
        cut = summary_chunks(visible(self._before), model, self._runtime.config)
        found = [Piece("system prompt", "", estimate(agent.prompt or "")), Piece("prompts", "what to write", asked)]
        found += [
            Piece("answers", f"the conversation as text, {number} of {len(cut)}", estimate(text))
            for number, text in enumerate(cut, 1)
        ]
        if len(cut) > 1:
            self._notes.append(f"It was asked for in {len(cut)} requests, each with the summary so far.")
        return found

    def _omitted(self, model: Model) -> Iterator[Omitted]:
        shown = {id(message) for message in self._view}
        covered = [message for message in self._before if id(message) not in shown]
        if covered:
            size = sum(_stored_tokens(message) for message in covered)
            yield Omitted("summarised", f"{len(covered)} messages", size, str(covered[0].info["id"]))
        masked = set(noted(self._answer or {}))
        for message in self._view:
            if message.info.get("providerID") == model.provider_id:
                masked.update(noted(message.info))
        for message in self._view:
            for part in message.parts:
                name, about = str(message.info["id"]), _name(part)
                if part.get("id") in masked:
                    yield Omitted("masked", about, _part_tokens(part), name)
                elif is_pruned(part):
                    yield Omitted("pruned", about, _part_tokens(part), name)


def _as_it_was(messages: Sequence[StoredMessage], answer: Document) -> list[StoredMessage]:
    """Messages as they were when an answer was begun: what was pruned later was still in view."""
    moment = answer["time"]["created"]
    return [StoredMessage(each.info, [unmarked(part, since=moment) for part in each.parts]) for each in messages]


def _said(turn: ModelMessage) -> Iterator[Piece]:
    match turn:
        case System():
            return
        case User(content=content):
            yield from (_piece("prompts", piece) for piece in content)
        case Assistant(content=content):
            yield from (_piece("answers", piece) for piece in content)
        case ToolResults(content=results):
            for result in results:
                note = "pruned" if result.output == (Text(text=PRUNED),) else ""
                words = [piece for piece in result.output if isinstance(piece, Text)]
                yield Piece("results", result.name, sum(map(piece_tokens, words)), note)
                yield from (_piece("results", piece) for piece in result.output if isinstance(piece, File))


def _piece(part: str, piece: Text | File | Reasoning | ToolUse) -> Piece:
    size = piece_tokens(piece)
    match piece:
        case Text(text=text):
            return Piece(part, _begin(text), size, "left out" if _LEFT_OUT.fullmatch(text) else "")
        case Reasoning(text=text):
            return Piece("reasoning", _begin(text), size)
        case ToolUse(name=name):
            return Piece("calls", name, size)
        case File(mime=mime, filename=filename):
            return Piece("files", f"{filename or ''} {mime}".strip(), size)


def _counted(info: Document, *, answer: bool = False) -> int | None:
    """The provider's count of what a step was given; with its answer, if that is wanted too."""
    tokens = as_object(info.get("tokens")) or {}
    cache = as_object(tokens.get("cache")) or {}
    sent = (tokens.get("input") or 0) + (cache.get("read") or 0) + (cache.get("write") or 0)
    said = (tokens.get("output") or 0) + (tokens.get("reasoning") or 0)
    return (sent + (said if answer else 0)) or None


def _stored_tokens(message: StoredMessage) -> int:
    return sum(map(_part_tokens, message.parts))


def _part_tokens(part: Document) -> int:
    state = as_object(part.get("state")) or {}
    if part.get("type") == "file":
        return piece_tokens(File(mime=str(part.get("mime")), url=str(part.get("url"))))
    return sum(estimate(str(each)) for each in (part.get("text"), state.get("input"), state.get("output")) if each)


def _name(part: Document) -> str:
    state = as_object(part.get("state")) or {}
    match part.get("type"):
        case "tool":
            return f"{part.get('tool')} {state.get('title') or ''}".strip()
        case "file":
            return f"{part.get('filename') or ''} {part.get('mime')}".strip()
        case kind:
            return f"{kind}: {_begin(str(part.get('text', '')))}"


def _begin(text: str) -> str:
    return " ".join(text[:400].split())[:80]
