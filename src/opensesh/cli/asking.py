"""Answers what a run waits for: permissions and the model's questions, put to whoever sits at the terminal.

Where nobody does, a request is refused and a line says so; a run never waits for an answer that cannot come.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from .. import events
from ..errors import NotFoundError
from ..records import as_list, as_object
from . import output, tool_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engine.engine import Engine
    from ..events import Event, PermissionAsked, QuestionAsked
    from ..permissions import Answer
    from ..records import Document
    from .run_screen import Screen
    from .terminal import Keyboard

    Tell = Callable[[str], None]

_ROOM = 60
"""How many lines of what is asked for are shown at first."""
_COLOURS = {"+": 32, "-": 31, "@": 36}


class Policy:
    """Answers when there is nobody to ask: everything is allowed, or nothing is."""

    def __init__(self, engine: Engine, tell: Tell, *, allow: bool) -> None:
        self.engine = engine
        self._tell = tell
        self._allow = allow
        self._hints: set[str] = set()

    async def mind(self, event: Event) -> None:
        """Answer the event, if it asks for something that has not been settled otherwise."""
        waiting = self.engine.runtime.permissions.pending, self.engine.runtime.questions.pending
        match event:
            case events.PermissionAsked() if any(each["id"] == event.id for each in waiting[0]):
                # To go round in circles for ever is nothing that anybody means by "everything", and who plans is not to
                # change anything unseen.
                if self._allow and event.permission != "doom_loop" and event.metadata.get("mode") != "plan":
                    self.reply(event, "once")
                else:
                    await self.permission(event)
            case events.QuestionAsked() if any(each["id"] == event.id for each in waiting[1]):
                await self.question(event)
            case _:
                pass

    async def permission(self, asked: PermissionAsked) -> None:
        """Refuse it."""
        what, _ = describe(asked, {}, self.engine.runtime.place.directory)
        why = _what_decides(asked)
        self._tell(f"! refused, since nobody can be asked: {what}")
        if why and why not in self._hints:
            self._tell(f"  {why}")
            self._hints.add(why)
        with suppress(NotFoundError):
            self.engine.runtime.permissions.refuse(asked.id, f"nobody could be asked{f'; {why}' if why else ''}")

    async def question(self, asked: QuestionAsked) -> None:
        """Leave it without an answer."""
        for each in asked.questions:
            self._tell(f"! not answered, since nobody can be asked: {each.get('question')}")
        self.dismiss(asked)

    def leave(self) -> None:
        """Stop asking."""

    def reply(self, asked: PermissionAsked, answer: Answer, message: str | None = None) -> None:
        """Answer a request, unless it was settled meanwhile."""
        with suppress(NotFoundError):
            self.engine.runtime.permissions.reply(asked.id, answer, message)

    def dismiss(self, asked: QuestionAsked) -> None:
        """Refuse to answer a question, unless it was settled meanwhile."""
        with suppress(NotFoundError):
            self.engine.runtime.questions.reject(asked.id)


class Person(Policy):
    """Asks at the terminal."""

    def __init__(self, engine: Engine, screen: Screen, keyboard: Keyboard, *, allow: bool) -> None:
        super().__init__(engine, screen.note, allow=allow)
        self._screen = screen
        self._keyboard = keyboard

    def leave(self) -> None:
        """Stop asking: the run is over."""
        self._keyboard.leave()

    async def permission(self, asked: PermissionAsked) -> None:
        """Show what is about to be done, and ask."""
        title, body = describe(asked, self._called(asked), self.engine.runtime.place.directory)
        self._screen.gap()
        self._screen.note(f"? {title}", 1, 33, kind="ask")
        self._show(body[:_ROOM])
        hidden = len(body) - _ROOM
        if hidden > 0:
            self._screen.note(f"  ... and {output.pluralize(hidden, 'line')} more; v shows all", 2, kind="ask")
        scope = output.clip(", ".join(asked.always), 40)
        always = f", a always ({asked.permission} {scope})" if asked.always else ""
        self._screen.note(f"  y once{always}, n no, or say what to do instead", 2, kind="ask")
        verdict: tuple[Answer, str | None] | None = None
        while verdict is None:
            typed = await self._typed("  > ")
            if typed in ("v", "view"):
                self._show(body)
            verdict = understood(typed)
        self.reply(asked, *verdict)

    async def question(self, asked: QuestionAsked) -> None:
        """Put the questions, one after the other."""
        answers: list[list[str]] = []
        for question in asked.questions:
            answer = await self._one(question)
            if answer is None:
                self.dismiss(asked)
                return
            answers.append(answer)
        with suppress(NotFoundError):
            self.engine.runtime.questions.reply(asked.id, answers)

    async def _one(self, question: Document) -> list[str] | None:
        options = [as_object(option) or {} for option in as_list(question.get("options")) or []]
        labels = [str(option.get("label", "")) for option in options]
        self._screen.gap()
        self._screen.note(f"? {question.get('question')}", 1, 36, kind="ask")
        for number, option in enumerate(options, 1):
            description = option.get("description")
            meaning = f": {description}" if description else ""
            self._screen.note(f"  {number}  {labels[number - 1]}{meaning}", kind="ask")
        several = bool(question.get("multiple"))
        wanted = f"{'numbers' if several else 'a number'}, or your own words" if options else "your answer"
        while True:
            typed = await self._typed(f"  {wanted}: ")
            answer = None if typed is None else chosen(typed, labels, multiple=several)
            if answer != []:
                return answer

    async def _typed(self, prompt: str) -> str | None:
        typed = await self._keyboard.line(lambda: self._screen.ask(prompt))
        if typed is None:
            return None
        self._screen.answered()
        return typed.strip()

    def _called(self, asked: PermissionAsked) -> Document:
        """What the tool that asks was called with; that is on disk before it does anything."""
        call = (asked.tool or {}).get("callID")
        for message in self.engine.sessions.messages(asked.session_id, last=2):
            for part in message.parts:
                if part.get("callID") == call and part.get("type") == "tool":
                    return as_object((as_object(part.get("state")) or {}).get("input")) or {}
        return {}

    def _show(self, lines: list[str]) -> None:
        for line in lines:
            colour = (_COLOURS[line[0]],) if line[:1] in _COLOURS else ()
            self._screen.note(f"  {line}", *colour, kind="ask")


def _what_decides(asked: PermissionAsked) -> str:
    """What would have allowed a request that nobody can be asked about, if anything would."""
    if asked.metadata.get("mode") == "plan":
        return "while a session plans, only what is known to change nothing is allowed unseen"
    if asked.permission == "doom_loop":
        return ""
    return '--yes allows everything; "permission" in opencode.json allows what you choose'


def describe(asked: PermissionAsked, given: Document, directory: str) -> tuple[str, list[str]]:
    """What a request is about: a line, and all that should be seen before it is allowed."""
    metadata = asked.metadata
    diff = metadata.get("diff")
    if isinstance(diff, str) and diff.strip():
        path = tool_lines.nearer(str(metadata.get("filepath", "")), directory)
        return f"{asked.permission} {path}", _hunks(diff)
    if asked.permission == "doom_loop":
        return f"go on, although {metadata.get('reason')}", [str(metadata.get("input"))]
    command = given.get("command")
    body = command.splitlines() if isinstance(command, str) else []
    if asked.permission == "bash" and body:
        return "bash", body
    return f"{asked.permission} {', '.join(asked.patterns)}".rstrip(), body


def _hunks(diff: str) -> list[str]:
    """A difference without its header, which names the file once more."""
    lines = diff.split("\n")
    first = next((number for number, line in enumerate(lines) if line.startswith("@@")), 0)
    return lines[first:] if lines[-1] else lines[first:-1]


def understood(typed: str | None) -> tuple[Answer, str | None] | None:
    """What an answer to a request means; ``None`` if it is neither yes nor no nor words."""
    match typed.lower() if typed is not None else "n":
        case "y" | "yes":
            return "once", None
        case "a" | "always":
            return "always", None
        case "n" | "no":
            return "reject", None
        case words if len(words) > 2 and words != "view":
            return "reject", typed
        case _:
            return None  # a slip of the finger


def chosen(typed: str, labels: list[str], *, multiple: bool) -> list[str]:
    """The labels that were meant: by number, by name, or as words of one's own."""
    typed = typed.strip()
    numbers = typed.replace(",", " ").split()
    if numbers and all(each.isdecimal() for each in numbers) and labels:
        picked = [labels[int(each) - 1] for each in numbers if 1 <= int(each) <= len(labels)]
        return picked if len(picked) == len(numbers) and (multiple or len(picked) == 1) else []
    named = next((label for label in labels if label.casefold() == typed.casefold()), typed)
    return [named] if named else []
