"""A provider that plays a script: :class:`ScriptedModel`.

It needs no network, and records the requests::

    model = ScriptedModel('CALL read {"filePath": "a.py"}\\n---\\nSAY Done.')
    ...  # run a session on it
    assert "a.py" in model.model_text(1)
    model.assert_complete()

:mod:`opensesh.testing.scripted.language` describes the language.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ...errors import ModelError
from ...models.model import SCRIPTED_PROMPT
from ...models.request import Assistant, Request, System, Text, User
from ...models.stream_events import FinishStep
from ...models.wire_helpers import encode_json
from ...text import pluralize
from .language import InvalidScriptError, Script, ScriptTurn, parse_prompt
from .playback import Action, actions_of, chat_usage, is_title, model_error, request_tail, role_of, text_of
from .steps import Expect, Fail, Hang, Say, Split, Title, Wait, prompt_usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from ...models.request import ModelMessage
    from ...models.stream_events import StreamEvent, Usage

TITLE = "Scripted title for session"
"""The answer to a title request if the script has none."""

SUMMARY = "Summary: we ran scripted steps. Next: continue."
"""The answer of a prompted model to a request without tools and without a script: a request to compact."""


class ScriptMismatchError(ModelError):
    """The script has no answer to a call. ``number`` counts calls from 0."""

    def __init__(self, number: int, reason: str, request: Request) -> None:
        super().__init__(f"call {number}: {reason}. The request ended with:\n{request_tail(request)}")
        self.number = number


class ScriptExhaustedError(ScriptMismatchError):
    """There were more calls than the script has turns."""


class UnmetExpectationError(ScriptMismatchError):
    """The request does not contain what the script expects."""


class ScriptedCall(NamedTuple):
    """One call and the turn that answers it."""

    number: int
    """Index into ``calls``, or into ``title_calls``."""
    request: Request
    turn: ScriptTurn
    usage: Usage
    """The usage to report if the turn has none."""
    id_prefix: str
    """Keeps the ids of this answer apart from those of the others."""
    title: bool = False

    @property
    def actions(self) -> list[Action]:
        """The actions in order: events, pauses, and at most one failure, at the end."""
        return actions_of(self.turn, self.usage, self.id_prefix)


class ScriptedModel:
    """Plays a script: one turn for each call, in the order of the calls.

    A title request is answered by the next ``TITLE`` turn, then by the last one again, and by :data:`TITLE` if there is
    none; it uses no other turn, since it may come at any time. Calls may overlap, and come from several threads.
    Concurrent sessions get a script each through ``sessions``: the first whose key occurs in a user message answers,
    unless ``route`` returns the key; the main ``script`` answers the rest.
    """

    def __init__(
        self,
        script: Script | str | None,
        *,
        sessions: Mapping[str, Script | str] | None = None,
        route: Callable[[Request], str | None] | None = None,
        usage: Callable[[Request], Usage] | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.time,
        records: bool = True,
    ) -> None:
        """Without a script it is :meth:`prompted`. Without ``records`` it keeps no calls, so that it needs no more
        memory the longer it is used.

        ``usage`` computes the usage of turns without ``USAGE``; the default is a prompt of 1,000 tokens.
        """
        self._sources: dict[str, _ScriptedTurns] = {
            key: _ScriptedTurns(_as_script(text), f"s{index}_")
            for index, (key, text) in enumerate((sessions or {}).items())
        }
        self._main = _PromptedTurns() if script is None else _ScriptedTurns(_as_script(script), "")
        self._route = route or self._session_key
        self._usage: Callable[[Request], Usage] = usage or (
            chat_usage if script is None else lambda _: prompt_usage(1000)
        )
        self._sleep = sleep
        self.clock = clock
        self._records = records
        self._lock = threading.Lock()
        self._calls: list[ScriptedCall] = []
        self._titles: list[ScriptedCall] = []
        self._failures: list[ModelError] = []
        self._dropped: list[int] = []

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> Self:
        """Play the script in a file. ``options`` are those of the constructor."""
        return cls(Script.read(Path(path)), **options)

    @classmethod
    def prompted(cls, **options: Any) -> Self:
        """Play the last prompt as a script; the answers since then show how far it got.

        It keeps no state but failures, so it serves any number of sessions and continues after a restart. A prompt that
        is not a script is answered with ``You said: ...``. Usage depends on the size of the request.
        """
        return cls(None, **options)

    @classmethod
    def named(cls, name: str, **options: Any) -> Self:
        """Return the model ``scripted/<name>`` of a configuration: ``prompt``, or the path of a script."""
        return cls(None, records=False, **options) if name == SCRIPTED_PROMPT else cls.from_file(name, **options)

    @property
    def is_prompted(self) -> bool:
        """Whether it plays prompts."""
        return isinstance(self._main, _PromptedTurns)

    @property
    def calls(self) -> tuple[ScriptedCall, ...]:
        """All calls except title requests, in order. The requests are the objects that were sent, not copies."""
        return tuple(self._calls)

    @property
    def title_calls(self) -> tuple[ScriptedCall, ...]:
        """The title requests."""
        return tuple(self._titles)

    @property
    def dropped(self) -> tuple[int, ...]:
        """The numbers of the calls whose answer was not read to the end."""
        return tuple(self._dropped)

    def model_text(self, number: int) -> str:
        """Return everything in the messages of a call, as text."""
        return "\n".join(f"[{role_of(message)}] {text_of(message)}" for message in self._calls[number].request.messages)

    def tools_offered(self, number: int) -> tuple[str, ...]:
        """Return the names of the tools that were offered in a call."""
        return tuple(tool.name for tool in self._calls[number].request.tools)

    def prefix_digest(self, number: int, messages: int | None = None) -> str:
        """Return a digest of the tools and the first ``messages`` messages of a call (default: all).

        Two calls with equal digests share that prefix in a provider's cache. Cache points are not part of it.
        """
        request = self._calls[number].request
        digest = hashlib.sha256(encode_json(request.tools))
        for message in request.messages[:messages]:
            digest.update(
                encode_json((role_of(message), message.text if isinstance(message, System) else message.content))
            )
        return digest.hexdigest()

    def assert_complete(self) -> None:
        """Raise ``AssertionError`` after a call too many, an unmet expectation, or unused turns."""
        __tracebackhide__ = True
        if self._failures:
            raise AssertionError(str(self._failures[0])) from self._failures[0]
        left = [turn for source in (self._main, *self._sources.values()) for turn in source.left()]
        if left:
            shown = "\n---\n".join(map(str, left[:3]))
            raise AssertionError(f"after {len(self._calls)} calls, {len(left)} turns were not used:\n{shown}")

    def next_call(self, request: Request, usage: Usage | None = None) -> ScriptedCall:
        """Take the turn that answers ``request``, and record the call.

        Raises :class:`ScriptExhaustedError` or :class:`UnmetExpectationError`. ``usage`` replaces the model's own.
        """
        title = is_title(request)
        with self._lock:
            record = self._titles if title else self._calls
            number = len(record)
            source = self._sources.get(self._route(request) or "", self._main) if self._sources else self._main
            try:
                turn, id_prefix = source.take(request, title=title)
            except LookupError as error:
                raise self._record_failure(ScriptExhaustedError(number, str(error.args[0]), request)) from None
            call = ScriptedCall(number, request, turn, usage or self._usage(request), id_prefix, title)
            if self._records:
                record.append(call)
            problem = _unmet(turn, request)
            if problem:
                raise self._record_failure(UnmetExpectationError(number, problem, request))
        return call

    async def play(self, call: ScriptedCall) -> AsyncGenerator[StreamEvent | Fail, None]:
        """Play the turn with its pauses. A failure is yielded as its step, and ends the turn."""
        ended = False
        try:
            for action in call.actions:
                match action:
                    case Wait():
                        await (self._sleep or asyncio.sleep)(action.seconds)
                    case Hang():
                        await asyncio.Event().wait()
                    case _:
                        ended = isinstance(action, FinishStep | Fail)
                        yield action
        finally:
            if not ended and not call.title:
                self._dropped.append(call.number)

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Answer ``request`` with the next turn."""
        begun = False
        async with aclosing(self.play(self.next_call(request))) as actions:
            async for action in actions:
                if isinstance(action, Fail):
                    raise model_error(action, self.clock(), begun=begun)
                begun = True
                yield action

    def _record_failure(self, error: ModelError) -> ModelError:
        self._failures.append(error)
        return error

    def _session_key(self, request: Request) -> str | None:
        prompts = "\n".join(text_of(message) for message in request.messages if isinstance(message, User))
        return next((key for key in self._sources if key in prompts), None)


class _ScriptedTurns:
    """The turns of a script in order; titles are separate."""

    def __init__(self, script: Script, id_prefix: str) -> None:
        self._turns = [turn for turn in script.turns if not turn.is_title]
        self._titles = [turn for turn in script.turns if turn.is_title]
        self._id_prefix = id_prefix
        self._taken = 0
        self._titles_taken = 0

    def take(self, request: Request, *, title: bool) -> tuple[ScriptTurn, str]:
        """Return the next turn and the prefix of its ids; raises ``LookupError`` if none is left."""
        if title:
            self._titles_taken += 1
            id_prefix = f"{self._id_prefix}title{self._titles_taken}"
            if self._titles_taken <= len(self._titles):
                return self._titles[self._titles_taken - 1], id_prefix
            # A session may get several titles: after the last one it is used again.
            last = self._titles[-1] if self._titles else None
            if last is None or isinstance(last.steps[-1], Fail | Hang):
                last = ScriptTurn((Title(TITLE),))
            return last, id_prefix
        if self._taken == len(self._turns):
            raise LookupError(f"no turn of the script is left; it has {pluralize(len(self._turns), 'turn')}")
        self._taken += 1
        return self._turns[self._taken - 1], f"{self._id_prefix}{self._taken}"

    def left(self) -> list[ScriptTurn]:
        return self._turns[self._taken :] + self._titles[self._titles_taken :]


class _PromptedTurns:
    """The turns in the last prompt."""

    def __init__(self) -> None:
        self._attempts: dict[bytes, int] = {}

    def take(self, request: Request, *, title: bool) -> tuple[ScriptTurn, str]:
        if title:
            return ScriptTurn((Title(TITLE),)), "title"
        texts, since = _last_prompt(request)
        calls: list[list[ScriptTurn]] = []
        try:
            for text in texts:
                calls = calls or parse_prompt(text)
        except InvalidScriptError as error:
            raise LookupError(f"the script in the prompt is invalid: {error}") from None
        if not calls:
            # A system reminder is not part of the prompt.
            prompt = [text for text in texts if not text.lstrip().startswith("<system-reminder>")]
            answer = "You said: " + "\n".join(prompt) if request.tools else SUMMARY
            return ScriptTurn((Split("word"), Say(f"{answer} "))), "0"
        position = _position(since, calls)
        if position >= len(calls):
            hint = "After a CALL the model is called again, so add '---' and another turn, such as 'SAY Done'"
            raise LookupError(f"no turn of the prompt is left; it has {pluralize(len(calls), 'turn')}. {hint}")
        attempts = len(calls[position])
        attempt = 0
        if attempts > 1:
            key = hashlib.sha256(encode_json(request.messages)).digest()
            attempt = self._attempts.pop(key, 0)
            if attempt + 1 < attempts:  # after the last one the count starts again
                self._attempts[key] = attempt + 1
        id_prefix = hashlib.sha256(encode_json((len(request.messages), texts, attempt))).hexdigest()[:10]
        return calls[position][attempt], id_prefix

    def left(self) -> list[ScriptTurn]:
        return []


def _last_prompt(request: Request) -> tuple[list[str], Sequence[ModelMessage]]:
    """Return the texts of the last user message, and the messages after it."""
    for index in range(len(request.messages) - 1, -1, -1):
        message = request.messages[index]
        if isinstance(message, User):
            texts = [part.text for part in message.content if isinstance(part, Text)]
            return texts, request.messages[index + 1 :]
    return [], request.messages


def _position(since: Sequence[ModelMessage], calls: list[list[ScriptTurn]]) -> int:
    """Return how many answers were given; a prefilled answer at the end does not count."""
    count = sum(isinstance(message, Assistant) for message in since)
    last = since[-1] if since else None
    if not isinstance(last, Assistant) or count > len(calls):
        return count
    scripted = "".join(step.text for step in calls[count - 1][-1].steps if isinstance(step, Say))
    return count if scripted.strip() == text_of(last).strip() else count - 1


def _as_script(script: Script | str) -> Script:
    return Script.parse(script) if isinstance(script, str) else script


def _unmet(turn: ScriptTurn, request: Request) -> str:
    """Return the first expectation of ``turn`` that ``request`` does not meet, or an empty string."""
    for step in turn.steps:
        if not isinstance(step, Expect):
            continue
        match step.where:
            case "last":
                met = step.text in (text_of(request.messages[-1]) if request.messages else "")
            case "system":
                met = step.text in "\n".join(
                    text_of(message) for message in request.messages if isinstance(message, System)
                )
            case "tools":
                met = {tool.name for tool in request.tools}.issuperset(step.names)
        if not met:
            return f"the script expects {step.where} {step.text!r}"
    return ""
