"""Compaction: a long conversation is summed up, and goes on from the summary.

What is summed up stays stored and readable; the summary only changes what is in view. The user's own prompts, the
open todos and the newest messages are carried over word for word. A summary counts only if it has text, is much
shorter than what it stands for, and did not fail; three in a row that do not count end the attempt, with a reason.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from .. import events, ids
from ..errors import ContextExceededError, ModelError, OpenseshError
from ..models import options
from ..models import stream_events as stream
from ..models.request import Request, System, Text, User
from ..records import (
    AssistantMessage,
    CompactionPart,
    MessageAbortedError,
    MessageTime,
    ModelRef,
    Path,
    Span,
    TextPart,
    UserMessage,
    merged,
)
from ..storage.protocol import StoredMessage
from .answer_writer import AnswerWriter
from .cancellation import run_uncancellable
from .failures import failure_of
from .prompts import words
from .summary import first_piece, pieces, previous_summary, transcript, user_prompts_verbatim
from .tokens import estimate
from .turn import closed_after
from .window import compaction_part, is_summary, usable, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config import Config
    from ..models.model import Model
    from ..records import Document, Failure, Session
    from ..sessions import Sessions
    from .components import Runtime

log = logging.getLogger("opensesh.engine")
_TRIES = 3
_SHORTER = 0.5
"""A summary may be at most this much of what it stands for."""
_SHORT_ENOUGH = 1_000
"""Tokens; a summary as short as this is never too long."""
_CAUTION = 0.9
"""How much of the window a request for a summary may fill, as we count."""
_SMALLEST = 4_000
"""Tokens of conversation that a request for a summary holds at least."""
_UNKNOWN_ROOM = 100_000
"""Tokens, where nobody knows what a model holds."""
_TAIL = (2_000, 15_000)


class NotCompacted(OpenseshError):
    """No summary could be had that would have helped."""


async def request_compaction(
    runtime: Runtime, session: Session, last: Document, *, auto: bool, tail: str | None = None
) -> StoredMessage:
    """Store the request: a user message that holds nothing but a compaction part."""
    info = _user(session, last)
    part = CompactionPart(
        id=ids.ascending("prt"), session_id=session.id, message_id=info.id, auto=auto, tail_start_id=tail
    )
    return await runtime.add_message(StoredMessage(info.document, [part.document]))


async def continue_prompt(runtime: Runtime, session: Session, last: Document) -> StoredMessage:
    """Store the words that set the model to work again after an automatic compaction."""
    info = _user(session, last)
    now = ids.now_ms()
    part = TextPart(
        id=ids.ascending("prt"),
        session_id=session.id,
        message_id=info.id,
        text=words("continue"),
        synthetic=True,
        time=Span(start=now, end=now),
    )
    return await runtime.add_message(StoredMessage(info.document, [part.document]))


class Compaction:
    """Sums up one session, once."""

    def __init__(self, runtime: Runtime, session: Session, request: StoredMessage) -> None:
        self._runtime = runtime
        self._session = session
        self._request = request
        agent = runtime.agents["compaction"]
        self._agent = agent
        self._words = question()
        self._model: Model = runtime.model_named(agent.model) if agent.model else runtime.model_of(request.info)
        self._spent = stream.Usage()
        self._room = request_room(self._model, runtime.config)

    async def run(self, messages: Sequence[StoredMessage]) -> tuple[StoredMessage, Failure | None]:
        """Sum up ``messages``, all of the session's before the request; the summary as stored, and why it failed if
        so."""
        writer = AnswerWriter(self._runtime.sessions, self._new_summary(), self._runtime.publish)
        try:
            await writer.save()
            draft = await self._draft(await self._shown(visible(messages)))
            text = draft + await asyncio.to_thread(self._verbatim, messages)
        except asyncio.CancelledError:
            writer.charge(self._spent, self._model)
            await run_uncancellable(writer.finish(MessageAbortedError(message="The user stopped this")))
            raise
        except Exception as error:
            if not isinstance(error, OpenseshError):
                log.exception("%s could not be summed up", self._session.id)
            failure = failure_of(error, self._model.provider_id)
            writer.charge(self._spent, self._model)
            await writer.finish(failure)
            return writer.message, failure
        await run_uncancellable(self._write(writer, text))
        self._runtime.publish(events.SessionCompacted(session_id=self._session.id))
        return writer.message, None

    async def _write(self, writer: AnswerWriter, text: str) -> None:
        await writer.step_started(None)
        await writer.put(self._text(writer.info, text))
        await writer.step_finished(stream.FinishStep(reason="stop", usage=self._spent), self._model, None)
        await writer.finish()

    async def _shown(self, view: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """What is summed up, and the words that ask for it, as the plugins want them."""
        hooks = self._runtime.hooks
        if hooks.plugins:
            auto = bool((compaction_part(self._request) or {}).get("auto"))
            self._words = await hooks.compaction_words(self._session.id, self._model, self._words, auto=auto)
            self._room = max(self._room + estimate(question()) - estimate(self._words), _SMALLEST)
            call = hooks.call(self._request.info, self._agent.name, self._model, "summary")
            view = await hooks.conversation(call, view) or view
        return view

    async def _draft(self, view: Sequence[StoredMessage]) -> str:
        """A summary that counts, or why there is none."""
        lines = transcript(view)
        whole = sum(estimate(line) for line in lines) + estimate(previous_summary(view))
        reason = ""
        for _ in range(_TRIES):
            text = await self._sum_up(lines, previous_summary(view), reason)
            reason = _objection(text, whole)
            if not reason:
                return text
        raise NotCompacted(f"no summary could be made: {reason}, {_TRIES} times in a row. Nothing was left out.")

    async def _sum_up(self, lines: Sequence[str], summary: str, objection: str) -> str:
        """Sum up piece by piece, each time with the summary so far, so that every request fits by itself.

        Where the provider says that one does not, it counts in another way than we do: the next are half as large.
        """
        while True:
            piece, rest = first_piece(lines, max(self._room - estimate(summary), _SMALLEST))
            try:
                summary = await self._ask(piece, summary, objection)
            except ContextExceededError:
                if self._room <= _SMALLEST:
                    raise
                self._room //= 2
                continue
            lines = rest
            if not lines:
                return summary

    async def _ask(self, text: str, summary: str, objection: str) -> str:
        before = f"<summary-so-far>\n{summary}\n</summary-so-far>\n\n" if summary else ""
        again = f"\n\nYour last attempt did not count: {objection}." if objection else ""
        ask = f"{before}<conversation>\n{text}\n</conversation>\n\n{self._words}{again}"
        model, agent = self._model, self._agent
        request = Request(
            model=model,
            messages=(System(text=agent.prompt or ""), User(content=(Text(text=ask),))),
            max_output_tokens=options.max_output_tokens(model, self._runtime.config.flags.output_token_max),
            options=merged(options.options(model, self._session.id), model.options, agent.options),
            headers=model.headers,
        )
        request = await self._runtime.hooks.side_request(self._request.info, agent.name, "summary", request)
        return await self._patiently(request)

    async def _patiently(self, request: Request) -> str:
        policy, attempt = self._runtime.settings.retry, 0
        while True:
            try:
                return await self._collect(request)
            except ModelError as error:
                attempt += 1
                if policy.reason(error, attempt) is None:
                    raise
                await self._runtime.settings.sleep(policy.delay(error, attempt) / 1000)

    async def _collect(self, request: Request) -> str:
        """What the model answers; what it counts is noted, whatever becomes of the answer."""
        texts: list[str] = []
        async with closed_after(self._runtime.connections.provider(request.model).stream(request)) as answer:
            async for event in answer:
                match event:
                    case stream.TextDelta(text=text):
                        texts.append(text)
                    case stream.FinishStep(reason=reason):
                        self._spent = _together(self._spent, event.usage)
                        if reason in ("content-filter", "error"):
                            raise NotCompacted(f"the provider ended the summary: {reason}")
                    case _:
                        pass
        return "".join(texts).strip()

    def _verbatim(self, messages: Sequence[StoredMessage]) -> str:
        """What no summary may change: the user's prompts and the list of what is still to be done."""
        prompts = user_prompts_verbatim(messages)
        todos = [todo for todo in self._runtime.sessions.todos(self._session.id) if todo.get("status") != "completed"]
        listed = "\n".join(f"- [{todo.get('status')}] {todo.get('content')}" for todo in todos)
        sections = (("The user's own words", prompts), ("Todos", listed))
        return "".join(f"\n\n## {title}\n{text}" for title, text in sections if text)

    def _new_summary(self) -> Document:
        place, model = self._runtime.place, self._model
        return AssistantMessage(
            id=ids.ascending("msg"),
            session_id=self._session.id,
            time=MessageTime(created=ids.now_ms()),
            parent_id=self._request.info["id"],
            model_id=model.id,
            provider_id=model.provider_id,
            mode="compaction",
            agent="compaction",
            path=Path(cwd=place.directory, root=place.sandbox),
            summary=True,
            variant=self._request.info.get("variant"),
        ).document

    def _text(self, info: Document, text: str) -> Document:
        now = ids.now_ms()
        return TextPart(
            id=ids.ascending("prt"),
            session_id=self._session.id,
            message_id=info["id"],
            text=text,
            time=Span(start=now, end=now),
        ).document


def summary_chunks(view: Sequence[StoredMessage], model: Model, config: Config) -> list[str]:
    """The conversation as the model that sums it up is given it: as text, one for each request that it takes."""
    return pieces(transcript(view), request_room(model, config)) or [""]


def question() -> str:
    """What that model is asked to write."""
    return words("compaction")


def request_room(model: Model, config: Config) -> int:
    """How many tokens of conversation, with the summary so far, one request for a summary may hold."""
    room = usable(model, config) or _UNKNOWN_ROOM
    return max(int(room * _CAUTION) - estimate(question()), _SMALLEST)


def undo_compaction(sessions: Sessions, session_id: str) -> bool:
    """Take the newest compaction back: the view is what it was before. Whether there was one."""
    messages = sessions.messages(session_id)
    summarised = {each.info.get("parentID") for each in messages if is_summary(each.info)}
    requests = [each for each in messages if compaction_part(each) and each.info["id"] in summarised]
    if not requests:
        return False
    request = requests[-1].info["id"]
    for message in messages:
        if message.info["id"] == request or message.info.get("parentID") == request:
            sessions.remove_message(session_id, message.info["id"])
    return True


def tail_start(messages: Sequence[StoredMessage], model: Model, runtime: Runtime) -> str | None:
    """The first message of the newest turns that stay in view word for word: whole turns, a quarter of the window at
    most."""
    settings = runtime.config.settings.compaction
    room = usable(model, runtime.config)
    most = settings.preserve_recent_tokens
    if most is None:
        most = min(max(room // 4, _TAIL[0]), _TAIL[1])
    whole = sum(_size(message) for message in messages)
    start, size, turns = None, 0, 0
    for message in reversed(messages):
        size += _size(message)
        if size > min(most, whole // 2):
            break
        if message.info.get("role") == "user":
            start, turns = str(message.info["id"]), turns + 1
            if settings.tail_turns is not None and turns >= settings.tail_turns:
                break
    return start


def _size(message: StoredMessage) -> int:
    return sum(estimate(line) for line in transcript([message]))


def _objection(text: str, whole: int) -> str:
    size = estimate(text)
    if not text.strip():
        return "it was empty"
    if size > max(whole * _SHORTER, _SHORT_ENOUGH):
        return f"it was {size} tokens long for a conversation of {whole}"
    return ""


def _together(one: stream.Usage, other: stream.Usage) -> stream.Usage:
    return stream.Usage(
        input=one.input + other.input,
        output=one.output + other.output,
        reasoning=one.reasoning + other.reasoning,
        cache_read=one.cache_read + other.cache_read,
        cache_write=one.cache_write + other.cache_write,
        total=other.total if one == stream.Usage() else _sum(one.total, other.total),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    """What a provider did not count is not known for all of it either."""
    return None if one is None or other is None else one + other


def _user(session: Session, last: Document) -> UserMessage:
    """A message in the user's name, for the agent and the model of the last real one."""
    model = last["model"]
    return UserMessage(
        id=ids.ascending("msg"),
        session_id=session.id,
        time=MessageTime(created=ids.now_ms()),
        agent=last.get("agent"),
        model=ModelRef(provider_id=model["providerID"], model_id=model["modelID"]),
    )
