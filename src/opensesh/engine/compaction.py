"""Compaction: a long conversation is summarised, and continues from the summary.

What is summarised stays stored and readable; the summary only changes what is visible. The user's prompts, the open
todos and the newest messages are carried over verbatim. A summary is accepted only if it has text, is much shorter than
what it replaces, and did not fail; after three that are not accepted, the compaction fails with the reason.

:class:`_Compaction` makes a summary. :class:`Compactions` decides for one session when one is needed, and detects when
compaction would not help because something else fills the window.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from .. import events, ids
from ..errors import ContextExceededError, ModelError, OpenseshError
from ..models import stream_events as stream
from ..models.request import Request, System, Text, User
from ..models.token_estimates import estimate
from ..records import CompactionPart, MessageAbortedError, Span, TextPart, UnknownError, merged, object_at
from ..storage.protocol import StoredMessage
from .cancellation import run_in_thread_uncancellable, run_uncancellable, uncancellable
from .context_window import (
    compaction_part,
    is_full,
    is_kept,
    overhead,
    request_tokens,
    usable,
    visible,
)
from .model_call import read_text
from .model_errors import failure_of, retry_delay_ms
from .prompts import prompt_text
from .summary_text import (
    MIN_CHUNK_TOKENS,
    first_chunk,
    max_chunk_tokens,
    previous_summary,
    summary_prompt,
    transcript,
    user_prompts_verbatim,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..config import Config
    from ..records import Document, Failure
    from .model_choice import Agents, Models
    from .plugin_hooks import PluginHooks
    from .session_history import History
    from .session_writer import SessionWriter
    from .settings import Settings

OPENCODE_CONTINUE = (
    "Continue if you have next steps, or stop and ask for clarification if you are unsure how to proceed."
)
"""The prompt after an automatic compaction in OpenCode's records."""
log = logging.getLogger("opensesh.engine")
_MAX_ATTEMPTS = 3
_MAX_RATIO = 0.5
"""Largest size of a summary, relative to what it replaces."""
_ALWAYS_ACCEPTED_TOKENS = 1_000
_MIN_TAIL_TOKENS, _MAX_TAIL_TOKENS = 2_000, 15_000
_MAX_IN_A_ROW = 2
"""Compactions of a session without a successful step in between."""


class CompactionError(OpenseshError):
    """No summary was accepted."""


class Compactor(NamedTuple):
    """What the compactions of all sessions need."""

    writer: SessionWriter
    config: Config
    agents: Agents
    models: Models
    hooks: PluginHooks
    settings: Settings
    take_snapshot: Callable[[], str | None]
    """For summaries as in OpenCode, which are steps that begin and end with a snapshot."""

    @property
    def is_plain(self) -> bool:
        """Whether a summary is only what the model wrote, and published like a streamed text."""
        return self.settings.opencode_events

    async def request(self, last: Document, *, auto: bool, tail: str | None = None) -> StoredMessage:
        """Store a request to compact: a user message with a compaction part, like the ``last`` prompt otherwise."""
        info = self.writer.new_prompt(last)
        part = CompactionPart(
            id=ids.ascending("prt"), session_id=info.session_id, message_id=info.id, auto=auto, tail_start_id=tail
        )
        return await self.writer.add_message(StoredMessage(info.document, [part.document]))

    async def append_continue_prompt(self, last: Document) -> StoredMessage:
        """Store the prompt with which the model continues after an automatic compaction."""
        info = self.writer.new_prompt(last)
        text = OPENCODE_CONTINUE if self.is_plain else prompt_text("continue")
        part = _text_part(info.session_id, info.id, text, synthetic=True)
        return await self.writer.add_message(StoredMessage(info.document, [part]))


class _Compaction:
    """One compaction in progress."""

    def __init__(self, compactor: Compactor, request: StoredMessage) -> None:
        self._compactor = compactor
        self._agent = agent = compactor.agents.get("compaction")
        models = compactor.models
        self._model = model = models.of_reference(agent.model) if agent.model else models.of_prompt(request.info)
        self._request = request
        self._answer = compactor.writer.new_answer(
            request.info, model.provider_id, model.id, "compaction", summary=True
        )
        self._session_id: str = request.info["sessionID"]
        self._prompt = summary_prompt()
        self._usage = stream.Usage()
        self._chunk_tokens = max_chunk_tokens(model, compactor.config)

    async def run(self, messages: Sequence[StoredMessage]) -> tuple[StoredMessage, Failure | None]:
        """Summarise ``messages``, which are all of the session before the request; return the summary, or an answer
        without one and why it failed."""
        answer, model = self._answer, self._model
        try:
            await answer.save()
            text = await self._summarise(await self._view(messages))
            if not self._compactor.is_plain:
                text += await self._carried_over(messages)
        except asyncio.CancelledError:
            answer.add_usage(self._usage, model)
            await answer.break_off_call(0)
            await run_uncancellable(answer.finish(MessageAbortedError(message="The user stopped this")))
            raise
        except Exception as error:
            if not isinstance(error, OpenseshError):
                log.exception("the compaction of %s failed", self._session_id)
            failure = failure_of(error, model.provider_id)
            answer.add_usage(self._usage, model)
            await answer.finish(failure)
            return answer.message, failure

        async def store() -> None:
            snapshot = None
            if self._compactor.is_plain:
                snapshot = await run_in_thread_uncancellable(self._compactor.take_snapshot)
            await answer.start_step(snapshot)
            part = _text_part(self._session_id, answer.info["id"], text)
            if self._compactor.is_plain:
                await answer.put(part | {"time": {"start": part["time"]["start"]}}, delta=text)
            await answer.put(part)
            await answer.finish_step(stream.FinishStep(reason="stop", usage=self._usage), model, snapshot)
            await answer.finish()

        await run_uncancellable(store())
        return answer.message, None

    async def _carried_over(self, messages: Sequence[StoredMessage]) -> str:
        """Return what no summary may change, to be added to it."""
        todos = await run_in_thread_uncancellable(self._compactor.writer.sessions.todos, self._session_id)
        open_todos = [todo for todo in todos if todo.get("status") != "completed"]
        listed = "\n".join(f"- [{todo.get('status')}] {todo.get('content')}" for todo in open_todos)
        sections = (("The user's own words", user_prompts_verbatim(messages)), ("Todos", listed))
        return "".join(f"\n\n## {title}\n{content}" for title, content in sections if content)

    async def _view(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Return what is summarised. Plugins may change it, and the prompt for the summary."""
        hooks, view = self._compactor.hooks, visible(messages)
        if not hooks.plugins.have_hooks:
            return view
        auto = bool((compaction_part(self._request) or {}).get("auto"))
        self._prompt = await hooks.compaction_prompt(self._session_id, self._model, self._prompt, auto=auto)
        longer = estimate(self._prompt) - estimate(summary_prompt())
        self._chunk_tokens = max(self._chunk_tokens - longer, MIN_CHUNK_TOKENS)
        call = hooks.chat_call(self._request.info, self._agent.name, self._model, "summary")
        return await hooks.messages(call, view) or view

    async def _summarise(self, view: Sequence[StoredMessage]) -> str:
        """Return a summary that is accepted. Raises :class:`CompactionError`.

        The conversation is summarised chunk by chunk, each with the summary so far, so that every request fits. If the
        provider rejects one as too long, it counts differently than we do: the next ones are half as large.
        """
        lines, previous = transcript(view), previous_summary(view)
        size = sum(estimate(line) for line in lines) + estimate(previous)
        rejection = ""
        for _ in range(_MAX_ATTEMPTS):
            summary, is_complete, remaining = previous, False, lines
            while not is_complete:
                chunk, rest = first_chunk(remaining, max(self._chunk_tokens - estimate(summary), MIN_CHUNK_TOKENS))
                try:
                    summary = await self._ask(chunk, summary, rejection)
                except ContextExceededError:
                    if self._chunk_tokens <= MIN_CHUNK_TOKENS:
                        raise
                    self._chunk_tokens //= 2
                else:
                    remaining, is_complete = rest, not rest
            tokens = estimate(summary)
            if summary and tokens <= max(size * _MAX_RATIO, _ALWAYS_ACCEPTED_TOKENS):
                return summary
            rejection = f"it was {tokens} tokens long for a conversation of {size}" if summary else "it was empty"
        raise CompactionError(
            f"no summary could be made: {rejection}, {_MAX_ATTEMPTS} times in a row. Nothing was left out."
        )

    async def _ask(self, text: str, summary: str, rejection: str) -> str:
        """Return the model's summary of ``text`` and the ``summary`` so far. Its usage counts even if it is not
        accepted."""
        before = f"<summary-so-far>\n{summary}\n</summary-so-far>\n\n" if summary else ""
        again = f"\n\nYour last attempt did not count: {rejection}." if rejection else ""
        content = f"{before}<conversation>\n{text}\n</conversation>\n\n{self._prompt}{again}"
        model, agent, compactor = self._model, self._agent, self._compactor
        request = Request(
            model=model,
            messages=(System(text=agent.prompt or ""), User(content=(Text(text=content),))),
            max_output_tokens=compactor.models.max_output_tokens(model),
            options=merged(compactor.models.call_options(model, self._session_id), model.options, agent.options),
            headers=model.headers,
        )
        request = await compactor.hooks.side_request(self._request.info, agent.name, "summary", request)

        async def count_usage(event: stream.FinishStep) -> None:
            self._usage += event.usage
            await self._answer.end_call(event.usage, model)
            if event.reason in ("content-filter", "error"):
                raise CompactionError(f"the provider ended the summary: {event.reason}")

        attempt = 0
        while True:
            await self._answer.begin_call(request)
            try:
                answer = await read_text(compactor.models.connections.provider(request.model), request, count_usage)
            except ModelError as error:
                await self._answer.break_off_call(None)
                attempt += 1
                delay = retry_delay_ms(compactor.settings.retry, error, attempt)
                if delay is None:
                    raise
                await compactor.settings.sleep(delay / 1000)
            else:
                return answer.strip()


def _text_part(session_id: str, message_id: str, text: str, *, synthetic: bool | None = None) -> Document:
    now = ids.now_ms()
    return TextPart(
        id=ids.ascending("prt"),
        session_id=session_id,
        message_id=message_id,
        text=text,
        synthetic=synthetic,
        time=Span(start=now, end=now),
    ).document


# -- when to compact ---------------------------------------------------------------------------------------------------


class Compactions:
    """Compacts one session, when it is requested and when its window is full."""

    def __init__(self, compactor: Compactor, history: History) -> None:
        self._compactor = compactor
        self._history = history
        self._in_a_row = 0
        self._has_reported = False

    @property
    def auto_enabled(self) -> bool:
        """Whether a session may be compacted without a request."""
        return self._compactor.config.settings.compaction.auto is not False

    @property
    def limit_reached(self) -> bool:
        """Whether another compaction would not help, since the last ones did not."""
        return self._in_a_row >= _MAX_IN_A_ROW

    def is_due(self, prompt: Document) -> bool:
        """Whether the last step filled the window."""
        last = self._history.last_answer
        if last is None or last.info.get("summary") or not last.info.get("finish"):
            return False
        if is_kept(self._history.messages, last):
            return False  # it filled a window that has been compacted since
        return self._fills(last, prompt) and not self.would_not_help(prompt)

    def would_not_help(self, prompt: Document) -> bool:
        """Whether the first step after the newest summary filled the window again: then it is not the conversation that
        fills it. This follows from the records, so that no later run tries either."""
        messages = self._history.messages
        if not messages or compaction_part(messages[0]) is None:
            return False
        for message in messages:
            info = message.info
            if info.get("role") == "assistant" and not info.get("summary") and not is_kept(messages, message):
                return self._fills(message, prompt)
        return False

    def _fills(self, message: StoredMessage, prompt: Document) -> bool:
        tokens = object_at(message.info, "tokens")
        try:
            return is_full(tokens, self._compactor.models.of_prompt(prompt), self._compactor.config)
        except OpenseshError:
            return False

    def note_step(self, prompt: Document) -> bool:
        """Note that a step succeeded, so that there is space again; whether to report what fills the window: once a
        run, if compaction would not help."""
        self._in_a_row = 0
        if self._has_reported or not self.would_not_help(prompt):
            return False
        self._has_reported = True
        return True

    @uncancellable
    async def request(self, prompt: Document) -> None:
        """Request a compaction; the request is stored even if this is cancelled.

        The newest messages stay visible verbatim: whole turns, in a quarter of the window at most.
        """
        self._in_a_row += 1
        config, messages = self._compactor.config, list(self._history.messages)
        settings = config.settings.compaction
        limit = settings.preserve_recent_tokens
        if limit is None:
            model = self._compactor.models.of_prompt(prompt)
            limit = min(max(usable(model, config) // 4, _MIN_TAIL_TOKENS), _MAX_TAIL_TOKENS)
        sizes = [sum(estimate(line) for line in transcript([message])) for message in messages]
        tail, size, turns = None, 0, 0
        for message, message_size in zip(reversed(messages), reversed(sizes), strict=True):
            size += message_size
            if size > min(limit, sum(sizes) // 2):
                break
            if message.info.get("role") == "user":
                tail, turns = str(message.info["id"]), turns + 1
                if settings.tail_turns is not None and turns >= settings.tail_turns:
                    break
        self._history.add(await self._compactor.request(prompt, auto=True, tail=tail))

    async def run(self, request: StoredMessage) -> tuple[StoredMessage, Failure | None]:
        """Compact, and replace the history with what is visible then; return the answer, and why it failed."""
        compactor = self._compactor
        messages = await compactor.writer.messages(request.info["sessionID"])
        try:
            # A prompt that was stored after the request stays visible, so it is not summarised.
            before = list(takewhile(lambda message: message.info["id"] != request.info["id"], messages))
            summary, failure = await _Compaction(compactor, request).run(before)
        except asyncio.CancelledError:
            await self._reload_history(request)
            raise
        if failure is not None:
            self._history.add(summary)
            return summary, failure
        await self._reload_history(request)
        try:
            if (compaction_part(request) or {}).get("auto"):
                model = compactor.models.of_prompt(request.info)
                if await compactor.hooks.should_continue(request.info, model):

                    async def continue_run() -> None:
                        self._history.add(await compactor.append_continue_prompt(request.info))

                    await run_uncancellable(continue_run())
        finally:
            compactor.writer.publish(events.SessionCompacted(session_id=request.info["sessionID"]))
        return summary, None

    @uncancellable
    async def _reload_history(self, request: StoredMessage) -> None:
        self._history.reset(visible(await self._compactor.writer.messages(request.info["sessionID"])))


def overhead_exceeds_window(request: Request, config: Config) -> bool:
    """Whether what every request holds fills the window alone, so that compaction would not help."""
    return 0 < usable(request.model, config) <= sum(overhead(request).values())


def window_overflow_error(request: Request, config: Config) -> UnknownError:
    """Return the error of a session that does not fit although it was compacted, with what fills the window."""
    sizes = ", ".join(f"{name} about {size:,}" for name, size in request_tokens(request).items())
    return UnknownError(
        message=f"the conversation does not fit into the {usable(request.model, config):,} tokens that "
        f"{request.model.ref} accepts, even after it was compacted. It holds: {sizes} tokens."
    )
