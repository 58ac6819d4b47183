"""May it? Rules decide; where they say so, the user is asked.

The rules themselves, and how they match, are in :mod:`opensesh.config.rules`: the last one that matches decides, and
where none does, the user is asked. Here is the asking: who waits for an answer, what an answer settles, and what is
allowed from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import ids
from .config.rules import allowing, decide, matches, permission_of
from .errors import (
    NotFoundError,
    PermissionCorrectedError,
    PermissionDeniedError,
    PermissionRefusedError,
    PermissionRejectedError,
)
from .events import PermissionAsked, PermissionReplied
from .records import Rule

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from .events import Publish
    from .records import Document

    Judge = Callable[[PermissionAsked, "Leave"], Awaitable["Leave"]]

Answer = Literal["once", "always", "reject"]
Leave = Literal["allow", "ask"]


def disabled(tools: Iterable[str], rules: Sequence[Rule]) -> frozenset[str]:
    """The tools not worth offering: the last rule about them, by their permission or their own name, forbids it all."""
    return frozenset(tool for tool in tools if _is_forbidden(tool, rules))


def _is_forbidden(tool: str, rules: Sequence[Rule]) -> bool:
    permission = "read" if tool == "recall" else permission_of(tool)
    about = (rule for rule in reversed(rules) if rule.permission == tool or matches(permission, rule.permission))
    last = next(about, None)
    return last is not None and last.action == "deny" and last.pattern == "*"


class _Waiting(NamedTuple):
    asked: PermissionAsked
    rules: tuple[Rule, ...]
    answer: asyncio.Future[None]
    anew: bool


class Permissions:
    """Those who wait to be allowed something, and what has been allowed for good.

    For one project, in one event loop. What was allowed "always" holds for every session until the program ends;
    ``remember`` is given the new rules, for whoever wants to keep them longer and pass them as ``approved`` next time.
    ``judge`` is told what the rules say of each request that they do not forbid, and has the last word on whether the
    user is asked; it raises :class:`PermissionDeniedError` to forbid it.
    """

    def __init__(
        self,
        publish: Publish,
        *,
        approved: Iterable[Rule] = (),
        remember: Callable[[Sequence[Rule]], object] | None = None,
        judge: Judge | None = None,
    ) -> None:
        self._publish = publish
        self._approved: list[Rule] = list(approved)
        self._remember = remember
        self._judge = judge
        self._waiting: dict[str, _Waiting] = {}
        self._closed = False

    @property
    def approved(self) -> Sequence[Rule]:
        """What was allowed for good, oldest first."""
        return tuple(self._approved)

    @property
    def pending(self) -> list[Document]:
        """The requests that wait for an answer, oldest first, as OpenCode's API lists them."""
        return [waiting.asked.properties for waiting in self._waiting.values()]

    async def ask(
        self,
        *,
        session_id: str,
        permission: str,
        patterns: Sequence[str],
        rules: Sequence[Rule],
        always: Sequence[str] | None = (),
        metadata: Mapping[str, Any] | None = None,
        tool: Document | None = None,
    ) -> Sequence[Rule]:
        """Return once every pattern is allowed: the rule that decided about each, one that asks where the user did.

        A rule that forbids any of them raises :class:`PermissionDeniedError` before anyone is asked. The user's no is
        :class:`PermissionRejectedError`, or :class:`PermissionCorrectedError` if they said what to do instead. Waits
        for as
        long as it takes; cancelling it withdraws the request. Where ``always`` is ``None`` the user is asked in any
        case, whatever the rules allow and whatever was allowed before, and the answer holds this once.
        """
        for pattern in patterns:
            # What was approved is often wider than what was asked for; it must not undo a rule that forbids.
            if decide(permission, pattern, rules).action == "deny":
                raise _denied(permission, pattern, rules)
        decided = [decide(permission, pattern, rules, self._approved) for pattern in patterns]
        anew = always is None
        leave: Leave = "ask" if anew or any(rule.action == "ask" for rule in decided) else "allow"
        if leave == "ask" or self._judge is not None:
            asked = PermissionAsked(
                id=ids.ascending("per"),
                session_id=session_id,
                permission=permission,
                patterns=list(patterns),
                metadata={name: value for name, value in (metadata or {}).items() if value is not None},
                always=list(always or ()),
                tool=tool,
            )
            judged = leave if self._judge is None else await self._judge(asked, leave)
            if anew or judged == "ask":
                # Where the rules allow it and someone else wants it asked, only the user's own word settles it.
                await self._wait(asked, tuple(rules) if leave == "ask" else (), anew=anew)
        return decided

    def allow_check(self, permission: str, rules: Sequence[Rule]) -> Callable[[str], bool]:
        """Tells of any pattern whether :meth:`ask` would let it pass without asking the user, as the rules have it and
        what was allowed for good. ``judge`` is not heard."""
        return allowing(permission, rules, self._approved)

    async def _wait(self, asked: PermissionAsked, rules: tuple[Rule, ...], *, anew: bool) -> None:
        import asyncio

        if self._closed:
            raise _rejected(asked, "there is nobody left to ask")
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[asked.id] = _Waiting(asked, rules, answer, anew)
        try:
            self._publish(asked)
            await answer
        finally:
            self._waiting.pop(asked.id, None)

    def reply(self, request_id: str, answer: Answer, message: str | None = None) -> None:
        """The user's answer to one request; :class:`NotFoundError` if it does not wait any more.

        ``once`` lets it pass. ``always`` also allows what the request offered, and with it whatever else the session
        waits for that this covers. ``reject`` refuses it and everything else the session waits for; with a
        ``message``, the one who asked is told that rather than stopped.
        """
        waiting = self._waiter(request_id)
        match answer:
            case "once":
                self._settle(waiting, answer)
            case "always":
                self._settle(waiting, answer)
                self._approve(waiting.asked)
            case "reject":
                asked = waiting.asked
                self._settle(waiting, answer, _corrected(asked, message) if message else _rejected(asked))
                self._refuse_others(asked, "the user refused something else in this turn")

    def refuse(self, request_id: str, why: str) -> None:
        """Reject a request where it is not the user who says no, and everything else the session waits for; whoever
        asked is told ``why``. :class:`NotFoundError` if it does not wait any more."""
        waiting = self._waiter(request_id)
        self._settle(waiting, "reject", _rejected(waiting.asked, why))
        self._refuse_others(waiting.asked, why)

    def close(self) -> None:
        """Refuse everyone who waits, and everyone who would have to."""
        self._closed = True
        for waiting in list(self._waiting.values()):
            self._settle(waiting, "reject", _rejected(waiting.asked, "the program is closing"))

    def _approve(self, asked: PermissionAsked) -> None:
        offered = [Rule(permission=asked.permission, pattern=pattern, action="allow") for pattern in asked.always]
        new = [rule for rule in offered if rule not in self._approved]
        self._approved += new
        if self._remember is not None and new:
            self._remember(new)
        for other in self._others(asked):
            needed = (
                decide(other.asked.permission, each, other.rules, self._approved) for each in other.asked.patterns
            )
            if not other.anew and all(rule.action == "allow" for rule in needed):
                self._settle(other, "always")

    def _waiter(self, request_id: str) -> _Waiting:
        waiting = self._waiting.get(request_id)
        if waiting is None:
            raise NotFoundError(f"nobody waits for permission {request_id}", id=request_id)
        return waiting

    def _refuse_others(self, asked: PermissionAsked, why: str) -> None:
        for other in self._others(asked):
            self._settle(other, "reject", _rejected(other.asked, why))

    def _others(self, asked: PermissionAsked) -> list[_Waiting]:
        return [each for each in self._waiting.values() if each.asked.session_id == asked.session_id]

    def _settle(self, waiting: _Waiting, reply: Answer, error: PermissionRefusedError | None = None) -> None:
        asked = waiting.asked
        self._waiting.pop(asked.id, None)
        if not waiting.answer.done():
            if error is None:
                waiting.answer.set_result(None)
            else:
                waiting.answer.set_exception(error)
        self._publish(PermissionReplied(session_id=asked.session_id, request_id=asked.id, reply=reply))


def _denied(permission: str, pattern: str, rules: Sequence[Rule]) -> PermissionDeniedError:
    about = [rule for rule in rules if matches(permission, rule.permission)]
    shown = ", ".join(f"{rule.permission} {rule.pattern!r}: {rule.action}" for rule in about[-5:])
    return PermissionDeniedError(
        f"A rule of the user's forbids {permission} for {pattern!r}; do not try to get around it (rules: {shown})",
        permission=permission,
        pattern=pattern,
        rules=about,
    )


def _rejected(asked: PermissionAsked, why: str = "the user refused it") -> PermissionRejectedError:
    shown = ", ".join(asked.patterns)
    return PermissionRejectedError(
        f"{asked.permission} was not allowed for {shown}: {why}", permission=asked.permission, id=asked.id
    )


def _corrected(asked: PermissionAsked, message: str) -> PermissionCorrectedError:
    return PermissionCorrectedError(
        f"The user refused this use of {asked.permission}, and said: {message}",
        permission=asked.permission,
        id=asked.id,
        feedback=message,
    )
