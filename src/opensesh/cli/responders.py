"""Answers to what a run asks: permission requests and the model's questions.

At a terminal the user is asked. Elsewhere a request is refused and a line is printed: a run never waits for an answer
that cannot come.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import events
from ..errors import NotFoundError
from ..events import Event, PermissionAsked, QuestionAsked
from ..history.formatting import relative_path
from ..records import Document, object_at, objects_in
from ..text import pluralize
from . import output

try:
    import termios
except ImportError:  # Windows
    termios = None

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..permissions import Answer
    from .run_screen import Screen

_LINES_SHOWN = 60
"""Lines of a permission request that are shown before the user asks for all of it."""
_MAX_SCOPE = 40


class Keyboard:
    """Reads lines from the terminal. A thread waits for them, so that the wait can be given up."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: asyncio.Future[str | None] | None = None
        self._started = False
        self._ended = False

    @classmethod
    def find(cls) -> Keyboard | None:
        """Return the keyboard of the terminal that shows standard error; ``None`` if there is none.

        If standard input is something else, such as a file, the terminal is opened.
        """
        if not sys.stderr.isatty():
            return None
        try:
            descriptor = sys.stdin.fileno() if sys.stdin.isatty() else os.open("/dev/tty", os.O_RDONLY)
            # Reading from the terminal in the background would stop the whole process.
            in_foreground = not hasattr(os, "tcgetpgrp") or os.tcgetpgrp(descriptor) == os.getpgrp()
            return cls(descriptor) if in_foreground else None
        except (OSError, ValueError):
            return None

    async def line(self, show_prompt: Callable[[], None]) -> str | None:
        """Return the next line typed after ``show_prompt``; ``None`` at the end of the input or after :meth:`leave`."""
        if self._ended:
            return None
        if termios is not None:
            with suppress(OSError):  # an answer typed before the question was shown does not count
                termios.tcflush(self._descriptor, termios.TCIFLUSH)
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        if not self._started:
            self._started = True
            threading.Thread(target=self._read, args=(loop,), name="keyboard", daemon=True).start()
        show_prompt()
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def leave(self) -> None:
        """Stop waiting."""
        self._deliver(None)

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not through sys.stdin: a thread that waits in there would hold its lock when the interpreter ends.
        while True:
            try:
                data = os.read(self._descriptor, 65536)
            except OSError:
                data = b""
            line = data.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n") if data else None
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._deliver, line, not data)
            if not data:
                return

    def _deliver(self, line: str | None, ended: bool = False) -> None:
        self._ended = self._ended or ended
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(line)


class AutoResponder:
    """Answers without a user: approves every permission request, or refuses every one."""

    def __init__(self, engine: Engine, print_error: Callable[[str], None], *, approve: bool) -> None:
        self.engine = engine
        self._print_error = print_error
        self._approve = approve
        self._hints: set[str] = set()

    async def handle_event(self, event: Event) -> None:
        """Answer an event that asks for something, unless it has been answered elsewhere."""
        match event:
            case events.PermissionAsked() if _is_pending(event.id, self.engine.permissions()):
                if self._approve and is_approved_by_yes(event):
                    self.reply(event, "once")
                else:
                    await self.answer_permission(event)
            case events.QuestionAsked() if _is_pending(event.id, self.engine.questions()):
                await self.answer_question(event)
            case _:
                pass

    async def answer_permission(self, request: PermissionAsked) -> None:
        """Refuse the request."""
        title, _ = describe(request, {}, self.engine.location.directory)
        hint = refusal_hint(request)
        self._print_error(f"! permission refused, because no user can be asked: {title}")
        if hint and hint not in self._hints:
            self._print_error(f"  {hint}")
            self._hints.add(hint)
        with suppress(NotFoundError):
            reason = f"no user could be asked{f'; {hint}' if hint else ''}"
            self.engine.refuse_permission(request.id, reason)

    async def answer_question(self, request: QuestionAsked) -> None:
        """Reject the questions."""
        for question in request.questions:
            self._print_error(f"! not answered, because no user can be asked: {question.get('question')}")
        self.reject(request)

    def leave(self) -> None:
        """Stop asking: the run is over."""

    def reply(self, request: PermissionAsked, answer: Answer, message: str | None = None) -> None:
        """Answer a permission request, unless it has been answered elsewhere."""
        with suppress(NotFoundError):
            self.engine.reply_permission(request.id, answer, message)

    def reject(self, request: QuestionAsked) -> None:
        """Reject questions, unless they have been answered elsewhere."""
        with suppress(NotFoundError):
            self.engine.reject_question(request.id)


class TerminalResponder(AutoResponder):
    """Asks the user at the terminal."""

    def __init__(self, engine: Engine, screen: Screen, keyboard: Keyboard, *, approve: bool) -> None:
        super().__init__(engine, screen.error, approve=approve)
        self._screen = screen
        self._keyboard = keyboard

    def leave(self) -> None:
        """Stop asking: the run is over."""
        self._keyboard.leave()

    async def answer_permission(self, request: PermissionAsked) -> None:
        """Show what is about to be done, and ask."""
        # The input of the tool call that asks is stored before the tool does anything.
        call = (request.tool or {}).get("callID")
        parts = [part for one in self.engine.sessions.messages(request.session_id, last=2) for part in one.parts]
        calls = [part for part in parts if part.get("callID") == call and part.get("type") == "tool"]
        tool_input = object_at(calls[0], "state", "input") if calls else {}
        title, body = describe(request, tool_input, self.engine.location.directory)
        self._screen.gap()
        self._screen.note(f"? {title}", 1, 33, kind="ask")
        self._show(body[:_LINES_SHOWN])
        hidden = len(body) - _LINES_SHOWN
        if hidden > 0:
            self._screen.note(f"  ... and {pluralize(hidden, 'line')} more; v shows all", 2, kind="ask")
        scope = ", ".join(request.always)
        if len(scope) > _MAX_SCOPE:  # all of it is shown: what is allowed for good must not be wider than what is seen
            self._show([f"always: {request.permission} {pattern}" for pattern in request.always])
            scope = f"{pluralize(len(request.always), 'pattern')} above"
        always = f", a always ({request.permission} {scope})" if request.always else ""
        self._screen.note(f"  y once{always}, n no, or type what to do instead", 2, kind="ask")
        decision: tuple[Answer, str | None] | None = None
        while decision is None:
            typed = await self._typed("  > ")
            if typed in ("v", "view"):
                self._show(body)
            decision = parse_answer(typed)
        self.reply(request, *decision)

    async def answer_question(self, request: QuestionAsked) -> None:
        """Ask the questions one after the other."""
        answers: list[list[str]] = []
        for question in request.questions:
            options = objects_in(question.get("options"))
            labels = [str(option.get("label", "")) for option in options]
            self._screen.gap()
            self._screen.note(f"? {question.get('question')}", 1, 36, kind="ask")
            for number, (option, label) in enumerate(zip(options, labels, strict=True), 1):
                meaning = f": {option['description']}" if option.get("description") else ""
                self._screen.note(f"  {number}  {label}{meaning}", kind="ask")
            multiple = bool(question.get("multiple"))
            prompt = f"{'numbers' if multiple else 'a number'}, or your own words" if options else "your answer"
            answer: list[str] = []
            while not answer:
                typed = await self._typed(f"  {prompt}: ")
                if typed is None:
                    self.reject(request)
                    return
                answer = parse_choice(typed, labels, multiple=multiple)
            answers.append(answer)
        with suppress(NotFoundError):
            self.engine.reply_question(request.id, answers)

    async def _typed(self, prompt: str) -> str | None:
        typed = await self._keyboard.line(lambda: self._screen.ask(prompt))
        if typed is None:
            return None
        self._screen.answered()
        return typed.strip()

    def _show(self, lines: list[str]) -> None:
        for line in lines:
            colour = output.DIFF_COLOURS.get(line[:1])
            self._screen.note(f"  {line}", *((colour,) if colour else ()), kind="ask", verbatim=True)


def is_approved_by_yes(request: PermissionAsked) -> bool:
    """Return whether ``--yes`` approves a request: no endless loop, no change while the session is in plan mode, and
    nothing that a rule may deny."""
    if request.permission == "doom_loop" or request.metadata.get("mode") == "plan":
        return False
    return request.metadata.get("uncertain") is not True


def refusal_hint(request: PermissionAsked) -> str:
    """Return why a request is refused without a user, or how it would be approved; empty if its title says that."""
    if request.metadata.get("mode") == "plan":
        return "in plan mode only read-only commands are approved without asking"
    if request.permission == "doom_loop":
        return ""
    if request.metadata.get("uncertain") is True:
        return "a rule may deny what this does, which cannot be seen from its text"
    return '--yes approves everything; "permission" in opencode.json approves what you choose'


def _is_pending(request_id: str, pending: list[Document]) -> bool:
    return any(request["id"] == request_id for request in pending)


def describe(request: PermissionAsked, tool_input: Document, directory: str) -> tuple[str, list[str]]:
    """Return what a permission request is about: a title, and the lines to read before approving it."""
    metadata = request.metadata
    diff = metadata.get("diff")
    if isinstance(diff, str) and diff.strip():
        path = relative_path(str(metadata.get("filepath", "")), directory)
        lines = diff.removesuffix("\n").split("\n")
        # The header of a diff names the file once more.
        first = next((number for number, line in enumerate(lines) if line.startswith("@@")), 0)
        return f"{request.permission} {path}", lines[first:]
    if request.permission == "doom_loop":
        return f"continue, although {metadata.get('reason')}", [str(metadata.get("input"))]
    command = tool_input.get("command")
    body = command.splitlines() if isinstance(command, str) else []
    if request.permission == "bash" and body:
        return "bash", body
    return f"{request.permission} {', '.join(request.patterns)}".rstrip(), body


def parse_answer(typed: str | None) -> tuple[Answer, str | None] | None:
    """Return the answer to a permission request, with a message to the model; ``None`` if it is unclear."""
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
            return None  # probably a mistyped key


def parse_choice(typed: str, labels: list[str], *, multiple: bool) -> list[str]:
    """Return the labels that were typed as numbers or names, or the user's own words; empty if it is unclear."""
    typed = typed.strip()
    numbers = typed.replace(",", " ").split()
    if numbers and all(number.isdecimal() for number in numbers) and labels:
        chosen = [labels[int(number) - 1] for number in numbers if 1 <= int(number) <= len(labels)]
        return chosen if len(chosen) == len(numbers) and (multiple or len(chosen) == 1) else []
    answer = next((label for label in labels if label.casefold() == typed.casefold()), typed)
    return [answer] if answer else []
