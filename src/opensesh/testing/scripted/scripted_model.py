"""A model that says what it was told to say: :class:`ScriptedModel`.

It is a :class:`~opensesh.models.request.Provider` like any other, needs no network, and remembers what it was asked::

    model = ScriptedModel('CALL read {"filePath": "a.py"}\\n---\\nSAY Done.')
    ...  # run a session on it
    assert "a.py" in model.model_text(1)
    model.assert_complete()

:mod:`opensesh.testing.scripted.language` describes the language.
"""

from __future__ import annotations

import hashlib
import threading
import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from ...errors import ModelError
from ...models.model import SCRIPTED_PROMPT
from ...models.request import Assistant, Request, System, Text, User
from ...models.request import ModelMessage as Message
from ...models.stream_events import Finish
from ...models.wire_helpers import encode_json
from .language import InvalidScriptError, Script, ScriptTurn, parse_prompt
from .playback import Action, actions_of, model_error
from .requests import chat_usage, ending, is_title, role_of, text_of
from .steps import Expect, Fail, Hang, Say, Split, Title, Wait, prompt_usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from ...models.stream_events import StreamEvent, Usage

TITLE = "Scripted title for session"
"""What a request for a title is answered with where the script holds none."""

SUMMARY = "Summary: we ran scripted steps. Next: continue."
"""What a prompted model answers when it is offered no tools and the prompt is no script: a request to compact."""


class ScriptMismatchError(ModelError):
    """A call that the script has no answer to. ``number`` counts calls from 0."""

    def __init__(self, number: int, reason: str, request: Request) -> None:
        super().__init__(f"call {number}: {reason}. The request ended with:\n{ending(request)}")
        self.number = number


class ScriptExhaustedError(ScriptMismatchError):
    """The model was asked once more than its script provides for."""


class UnmetExpectationError(ScriptMismatchError):
    """The request was not what the script expects at this point."""


class ScriptedCall(NamedTuple):
    """One call, and the turn that answers it."""

    number: int
    """Counts from 0: an index into ``calls``, or into ``title_calls``."""
    request: Request
    turn: ScriptTurn
    usage: Usage
    """What is reported if the turn does not say."""
    mark: str
    """What keeps the ids of this answer apart from those of every other."""
    title: bool = False

    @property
    def actions(self) -> list[Action]:
        """What happens, in order: events, pauses, and at most one failure, at the end."""
        return actions_of(self.turn, self.usage, self.mark)


class _Source(Protocol):
    """Where the next turn comes from."""

    def take(self, request: Request, *, title: bool) -> tuple[ScriptTurn, str]:
        """The turn that answers ``request``, and the mark for its ids. Raises ``LookupError`` where there is none."""
        ...

    def left(self) -> list[ScriptTurn]:
        """What was not asked for."""
        ...


class ScriptedModel:
    """Plays a script: one turn for each call, in the order of the calls.

    A request for a title is answered by the next ``TITLE`` turn, then by the last one again, and by :data:`TITLE`
    where there is none; it uses up nothing else, since it comes whenever it comes. Calls may overlap, and come from
    several threads. Sessions that run at the same time get a script each by way of ``sessions``: the first whose key
    occurs in something the user said answers, unless ``route`` names the key; the main ``script`` answers the rest.
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
    ) -> None:
        """No script at all is :meth:`prompted`.

        ``usage`` counts where a turn does not; without it every such call has a prompt of 1,000 tokens.
        """
        self._sources: dict[str, _Source] = {
            key: _Queue(_as_script(own), f"s{index}_") for index, (key, own) in enumerate((sessions or {}).items())
        }
        self._main: _Source = _Prompts() if script is None else _Queue(_as_script(script), "")
        self._route = route or self._occurring
        self._usage = usage or (chat_usage if script is None else _flat_usage)
        self._sleep = sleep
        self.clock = clock
        self._lock = threading.Lock()
        self._calls: list[ScriptedCall] = []
        self._titles: list[ScriptedCall] = []
        self._failures: list[ModelError] = []
        self._dropped: list[int] = []

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> Self:
        """Play the script in a file. ``options`` as for the constructor."""
        return cls(Script.read(Path(path)), **options)

    @classmethod
    def prompted(cls, **options: Any) -> Self:
        """Play what the user says: the last prompt is the script, and the answers since then say how far it got.

        Nothing is remembered between calls but failures, so it serves any number of sessions, and goes on where it was
        after a restart. A prompt that is no script is answered with ``You said: ...``. Usage is counted by
        :func:`~opensesh.testing.scripted.requests.chat_usage`.
        """
        return cls(None, **options)

    @classmethod
    def named(cls, name: str, **options: Any) -> Self:
        """The model ``scripted/<name>`` of a configuration: ``prompt``, or the path of a script."""
        return cls.prompted(**options) if name == SCRIPTED_PROMPT else cls.from_file(name, **options)

    @property
    def is_prompted(self) -> bool:
        """Whether prompts are its script."""
        return isinstance(self._main, _Prompts)

    @property
    def calls(self) -> tuple[ScriptedCall, ...]:
        """Every call but those for titles, in order. The requests are those that were sent, not copies."""
        return tuple(self._calls)

    @property
    def title_calls(self) -> tuple[ScriptedCall, ...]:
        """The calls for titles."""
        return tuple(self._titles)

    @property
    def dropped(self) -> tuple[int, ...]:
        """The numbers of the calls whose answer was not read to its end."""
        return tuple(self._dropped)

    def model_text(self, number: int) -> str:
        """Everything the model saw in a call, as text, a message after the other."""
        return "\n".join(f"[{role_of(message)}] {text_of(message)}" for message in self._calls[number].request.messages)

    def tools_offered(self, number: int) -> tuple[str, ...]:
        """The names of the tools that were on offer in a call."""
        return tuple(tool.name for tool in self._calls[number].request.tools)

    def prefix_digest(self, number: int, messages: int | None = None) -> str:
        """A digest of the tools and the first ``messages`` messages of a call (all, without a number).

        Two calls with equal digests share that prefix in a provider's cache. Where the cache points lie is not part of
        it.
        """
        request = self._calls[number].request
        digest = hashlib.sha256(encode_json(request.tools))
        for message in request.messages[:messages]:
            digest.update(
                encode_json((role_of(message), message.text if isinstance(message, System) else message.content))
            )
        return digest.hexdigest()

    def assert_complete(self) -> None:
        """Fail if anything went against the script: a call too many, an expectation not met, turns never asked for."""
        __tracebackhide__ = True
        if self._failures:
            raise AssertionError(str(self._failures[0])) from self._failures[0]
        left = [turn for source in (self._main, *self._sources.values()) for turn in source.left()]
        if left:
            shown = "\n---\n".join(map(str, left[:3]))
            raise AssertionError(f"after {len(self._calls)} calls, {len(left)} turns were never asked for:\n{shown}")

    def next_call(self, request: Request, usage: Usage | None = None) -> ScriptedCall:
        """Take the turn that answers ``request``, and record the call.

        Raises :class:`OutOfScript` or :class:`UnmetExpectation`. ``usage`` goes before the model's own count.
        """
        title = is_title(request)
        with self._lock:
            record = self._titles if title else self._calls
            number = len(record)
            source = self._sources.get(self._route(request) or "", self._main)
            try:
                turn, mark = source.take(request, title=title)
            except LookupError as error:
                raise self._note(ScriptExhaustedError(number, str(error.args[0]), request)) from None
            call = ScriptedCall(number, request, turn, usage or self._usage(request), mark, title)
            record.append(call)
            problem = _unmet(turn, request)
            if problem:
                raise self._note(UnmetExpectationError(number, problem, request))
        return call

    async def play(self, call: ScriptedCall) -> AsyncGenerator[StreamEvent | Fail, None]:
        """Play the turn, pauses included. A failure comes as the step that asks for it, and is the end."""
        ended = False
        try:
            for action in call.actions:
                match action:
                    case Wait():
                        await self._pause(action.seconds)
                    case Hang():
                        await _for_ever()
                    case _:
                        ended = isinstance(action, Finish | Fail)
                        yield action
        finally:
            if not ended and not call.title:
                self._dropped.append(call.number)

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Answer ``request`` as the script says."""
        begun = False
        async with aclosing(self.play(self.next_call(request))) as actions:
            async for action in actions:
                if isinstance(action, Fail):
                    raise model_error(action, self.clock(), begun=begun)
                begun = True
                yield action

    async def _pause(self, seconds: float) -> None:
        if self._sleep is not None:
            await self._sleep(seconds)
            return
        import asyncio

        await asyncio.sleep(seconds)

    def _note(self, error: ModelError) -> ModelError:
        self._failures.append(error)
        return error

    def _occurring(self, request: Request) -> str | None:
        if not self._sources:
            return None
        said = "\n".join(text_of(message) for message in request.messages if isinstance(message, User))
        return next((key for key in self._sources if key in said), None)


class _Queue:
    """Turns in the order of a script, titles apart."""

    def __init__(self, script: Script, mark: str) -> None:
        self._turns = [turn for turn in script.turns if not turn.is_title]
        self._titles = [turn for turn in script.turns if turn.is_title]
        self._mark = mark
        self._taken = 0
        self._titled = 0

    def take(self, request: Request, *, title: bool) -> tuple[ScriptTurn, str]:
        if title:
            self._titled += 1
            return self._title(), f"{self._mark}title{self._titled}"
        if self._taken == len(self._turns):
            raise LookupError(f"the script has {len(self._turns)} turns, and all were used")
        self._taken += 1
        return self._turns[self._taken - 1], f"{self._mark}{self._taken}"

    def _title(self) -> ScriptTurn:
        """The next title; then, since a session may be titled more than once, the last one again."""
        if self._titled <= len(self._titles):
            return self._titles[self._titled - 1]
        last = self._titles[-1] if self._titles else None
        if last is None or isinstance(last.steps[-1], Fail | Hang):
            return ScriptTurn((Title(TITLE),))
        return last

    def left(self) -> list[ScriptTurn]:
        return self._turns[self._taken :] + self._titles[self._titled :]


class _Prompts:
    """Turns that the last prompt spells out."""

    def __init__(self) -> None:
        self._attempts: dict[bytes, int] = {}

    def take(self, request: Request, *, title: bool) -> tuple[ScriptTurn, str]:
        if title:
            return ScriptTurn((Title(TITLE),)), "title"
        texts, since = _last_prompt(request)
        calls = _scripted_calls(texts)
        if not calls:
            said = [text for text in texts if not text.lstrip().startswith("<system-reminder>")]  # which nobody typed
            return _words("You said: " + "\n".join(said) if request.tools else SUMMARY), "0"
        position = _position(since, calls)
        if position >= len(calls):
            more = "after a CALL the model is asked again, so add '---' and another turn, such as 'SAY Done'"
            raise LookupError(f"all answers that the prompt scripts were given ({len(calls)}); {more}")
        attempt = self._attempt(request, len(calls[position])) if len(calls[position]) > 1 else 0
        mark = hashlib.sha256(encode_json((len(request.messages), texts, attempt))).hexdigest()[:10]
        return calls[position][attempt], mark

    def left(self) -> list[ScriptTurn]:
        return []

    def _attempt(self, request: Request, attempts: int) -> int:
        """Which attempt this is. After the last one the count begins anew."""
        key = hashlib.sha256(encode_json(request.messages)).digest()
        attempt = self._attempts.pop(key, 0)
        if attempt + 1 < attempts:
            self._attempts[key] = attempt + 1
        return attempt


def _scripted_calls(texts: list[str]) -> list[list[ScriptTurn]]:
    """The script in the first of ``texts`` that holds one."""
    for text in texts:
        try:
            calls = parse_prompt(text)
        except InvalidScriptError as error:
            raise LookupError(f"the prompt is no script that can be played: {error}") from None
        if calls:
            return calls
    return []


def _last_prompt(request: Request) -> tuple[list[str], Sequence[Message]]:
    """The texts of the last thing the user said, and what came after it."""
    messages = request.messages
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, User):
            return [part.text for part in message.content if isinstance(part, Text)], messages[index + 1 :]
    return [], messages


def _position(since: Sequence[Message], calls: list[list[ScriptTurn]]) -> int:
    """How many answers were given. Words put into the model's mouth, at the very end, are none of them."""
    count = sum(isinstance(message, Assistant) for message in since)
    last = since[-1] if since else None
    if not isinstance(last, Assistant) or count > len(calls):
        return count
    scripted = "".join(step.text for step in calls[count - 1][-1].steps if isinstance(step, Say))
    return count if scripted.strip() == text_of(last).strip() else count - 1


def _words(text: str) -> ScriptTurn:
    return ScriptTurn((Split("word"), Say(f"{text} ")))


def _as_script(script: Script | str) -> Script:
    return Script.parse(script) if isinstance(script, str) else script


def _flat_usage(request: Request) -> Usage:
    return prompt_usage(1000)


async def _for_ever() -> None:
    import asyncio

    await asyncio.Event().wait()


def _unmet(turn: ScriptTurn, request: Request) -> str:
    """The first expectation of ``turn`` that ``request`` does not meet, or nothing."""
    for step in turn.steps:
        if not isinstance(step, Expect):
            continue
        match step.where:
            case "last":
                met = step.text in (text_of(request.messages[-1]) if request.messages else "")
            case "system":
                met = step.text in "\n".join(text_of(one) for one in request.messages if isinstance(one, System))
            case "tools":
                met = {tool.name for tool in request.tools}.issuperset(step.names)
        if not met:
            return f"the script expects {step.where} {step.text!r}"
    return ""
