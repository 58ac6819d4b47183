"""Permission checks: rules first, then the user.

The rules and how they match are in :mod:`opensesh.config.rules`: the last rule that matches decides, and where none
does the user is asked. This module keeps the pending requests, applies the replies, and remembers what was allowed
"always".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import ids
from .config.rules import allowing, decide, matches, overlaps, permission_of
from .errors import (
    NotFoundError,
    PermissionCorrectedError,
    PermissionDeniedError,
    PermissionRefusedError,
    PermissionRejectedError,
)
from .events import PermissionAsked, PermissionReplied, Publish
from .records import Document, Rule

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    Judge = Callable[[PermissionAsked, "Verdict"], Awaitable["Verdict"]]

Answer = Literal["once", "always", "reject"]
Verdict = Literal["allow", "ask"]


def disabled(tools: Iterable[str], rules: Sequence[Rule]) -> frozenset[str]:
    """Return the tools that are not offered: the last rule about them, by permission or by name, denies everything."""
    denied: list[str] = []
    for tool in tools:
        permission = "read" if tool == "recall" else permission_of(tool)
        for rule in reversed(rules):
            if rule.permission == tool or matches(permission, rule.permission):
                if rule.action == "deny" and rule.pattern == "*":
                    denied.append(tool)
                break
    return frozenset(denied)


def may_be_denied(
    permission: str,
    patterns: Sequence[str],
    possible: Sequence[str],
    rules: Sequence[Rule],
    forms: Sequence[str] = (),
) -> bool:
    """Return whether rules that allow ``patterns`` might not allow what the request does besides.

    ``possible`` is what that may be, as far as it is known; nothing if the patterns show everything. ``forms`` are
    what the patterns stand for, with ``*`` where that is not known. Raises :class:`PermissionDeniedError` if a rule
    denies some of it.
    """
    meeting = [form for form in forms if _may_meet_exception(permission, patterns, form, rules)]
    for subject in possible:
        if decide(permission, subject, rules).action == "deny":
            raise _denied(permission, subject, rules)
    if meeting:
        return True
    return bool(possible) and any(
        _has_exception(permission, decide(permission, pattern, rules), rules) for pattern in patterns
    )


class _PendingRequest(NamedTuple):
    asked: PermissionAsked
    rules: tuple[Rule, ...]
    reply: asyncio.Future[None]
    always_asks: bool


class Permissions:
    """Pending permission requests, and the rules that the user has approved with "always".

    For one project in one event loop. Approved rules apply to every session until the process ends. ``judge`` is called
    with each request that the rules do not deny and with their verdict; it returns the final verdict, or raises
    :class:`PermissionDeniedError`.
    """

    def __init__(self, publish: Publish, *, judge: Judge | None = None) -> None:
        self._publish = publish
        self._approved: list[Rule] = []
        self._judge = judge
        self._pending: dict[str, _PendingRequest] = {}
        self._closed = False

    @property
    def approved(self) -> Sequence[Rule]:
        """The rules approved with "always", oldest first."""
        return tuple(self._approved)

    @property
    def pending(self) -> list[Document]:
        """The pending requests, oldest first, as OpenCode's API lists them."""
        return [request.asked.properties for request in self._pending.values()]

    def asking_rule(self, request_id: str) -> Rule | None:
        """Return the rule that makes a pending request ask; ``None`` if no rule does, but a hook or the tool itself."""
        request = self._pending.get(request_id)
        if request is None:
            return None
        decided = [decide(request.asked.permission, pattern, request.rules) for pattern in request.asked.patterns]
        return next((rule for rule in decided if rule.action == "ask" and rule in request.rules), None)

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
        """Return once every pattern is allowed: the rule that decided each pattern, with the action "ask" where the
        user decided.

        A rule that denies any pattern raises :class:`PermissionDeniedError` before the user is asked. If the user
        refuses, this raises :class:`PermissionRejectedError`, or :class:`PermissionCorrectedError` with the user's
        instructions. Waits without a timeout; cancelling withdraws the request. If ``always`` is ``None``, the user is
        asked even if the rules allow it, and the reply is valid once.
        """
        decided: list[Rule] = []
        for pattern in patterns:
            # An approved rule is often wider than the request it came from; it must not override a denial.
            if decide(permission, pattern, rules).action == "deny":
                raise _denied(permission, pattern, rules)
            decided.append(decide(permission, pattern, rules, self._approved))
        always_asks = always is None
        verdict: Verdict = "ask" if always_asks or any(rule.action == "ask" for rule in decided) else "allow"
        if verdict == "ask" or self._judge is not None:
            asked = PermissionAsked(
                id=ids.ascending("per"),
                session_id=session_id,
                permission=permission,
                patterns=list(patterns),
                metadata={name: value for name, value in (metadata or {}).items() if value is not None},
                always=list(always or ()),
                tool=tool,
            )
            judged = verdict if self._judge is None else await self._judge(asked, verdict)
            if always_asks or judged == "ask":
                # Where the rules allow it and the judge asks, an "always" for another request does not settle it.
                await self._wait(asked, tuple(rules) if verdict == "ask" else (), always_asks=always_asks)
        return decided

    def allow_check(self, permission: str, rules: Sequence[Rule]) -> Callable[[str], bool]:
        """Return a function that tells whether rules and approvals allow a pattern without asking the user.

        ``judge`` is not called.
        """
        return allowing(permission, rules, self._approved)

    async def _wait(self, asked: PermissionAsked, rules: tuple[Rule, ...], *, always_asks: bool) -> None:
        import asyncio  # not at the top: the command line imports this module without running a session

        if self._closed:
            raise _rejected(asked, "no user can be asked any more")
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending[asked.id] = _PendingRequest(asked, rules, reply, always_asks)
        try:
            self._publish(asked)
            await reply
        finally:
            if self._pending.pop(asked.id, None) is not None:  # the run was aborted: clients close their dialogs
                self._publish(PermissionReplied(session_id=asked.session_id, request_id=asked.id, reply="reject"))

    def reply(self, request_id: str, answer: Answer, message: str | None = None) -> None:
        """Apply the user's reply to a request. Raises :class:`NotFoundError` if it is not pending.

        ``once`` allows it. ``always`` also approves the patterns that the request offered, and allows the session's
        other pending requests that these cover. ``reject`` refuses this and all other pending requests of the session;
        with a ``message``, the call fails with the message and the turn continues.
        """
        request = self._find(request_id)
        match answer:
            case "once":
                self._settle(request, answer)
            case "always":
                self._settle(request, answer)
                self._approve(request.asked)
            case "reject":
                asked, error = request.asked, _rejected(request.asked)
                if message:
                    error = PermissionCorrectedError(
                        f"The user refused this use of {asked.permission} with this message: {message}",
                        permission=asked.permission,
                        id=asked.id,
                        feedback=message,
                    )
                self._settle(request, answer, error)
                self._refuse_others(asked, "the user refused something else in this turn")

    def refuse(self, request_id: str, why: str) -> None:
        """Reject a request, and the session's other pending ones, for a reason other than the user's reply.

        Raises :class:`NotFoundError` if it is not pending.
        """
        request = self._find(request_id)
        self._settle(request, "reject", _rejected(request.asked, why))
        self._refuse_others(request.asked, why)

    def close(self) -> None:
        """Reject all pending and all future requests."""
        self._closed = True
        for request in list(self._pending.values()):
            self._settle(request, "reject", _rejected(request.asked, "the program is closing"))

    def _approve(self, asked: PermissionAsked) -> None:
        offered = [Rule(permission=asked.permission, pattern=pattern, action="allow") for pattern in asked.always]
        self._approved += [rule for rule in offered if rule not in self._approved]
        for other in self._others(asked):
            request = other.asked
            decided = (decide(request.permission, item, other.rules, self._approved) for item in request.patterns)
            if not other.always_asks and all(rule.action == "allow" for rule in decided):
                self._settle(other, "always")

    def _find(self, request_id: str) -> _PendingRequest:
        request = self._pending.get(request_id)
        if request is None:
            raise NotFoundError(f"no pending permission request {request_id}", id=request_id)
        return request

    def _refuse_others(self, asked: PermissionAsked, why: str) -> None:
        for other in self._others(asked):
            self._settle(other, "reject", _rejected(other.asked, why))

    def _others(self, asked: PermissionAsked) -> list[_PendingRequest]:
        return [request for request in self._pending.values() if request.asked.session_id == asked.session_id]

    def _settle(self, request: _PendingRequest, reply: Answer, error: PermissionRefusedError | None = None) -> None:
        asked = request.asked
        self._pending.pop(asked.id, None)
        if not request.reply.done():
            if error is None:
                request.reply.set_result(None)
            else:
                request.reply.set_exception(error)
        self._publish(PermissionReplied(session_id=asked.session_id, request_id=asked.id, reply=reply))


def _has_exception(permission: str, decisive: Rule, rules: Sequence[Rule]) -> bool:
    """Return whether a rule after ``decisive``, which would win where both match, does not allow something."""
    for rule in reversed(rules):
        if rule == decisive:
            return False
        if rule.action != "allow" and matches(permission, rule.permission):
            return True
    return False


def _may_meet_exception(permission: str, patterns: Sequence[str], form: str, rules: Sequence[Rule]) -> bool:
    """Return whether a rule behind those that decide ``patterns`` asks about a command that ``form`` may become.
    Raises :class:`PermissionDeniedError` if one denies every command that it may become."""
    decisive = [decide(permission, pattern, rules) for pattern in patterns]
    for rule in reversed(rules):
        if rule in decisive:
            return False
        # A rule that begins with a star could meet every word that is not known.
        is_about = rule.pattern[:1] not in ("*", "?") or "*" not in form
        if matches(permission, rule.permission) and is_about and overlaps(form, rule.pattern):
            if rule.action == "deny" and matches(form, rule.pattern):
                raise _denied(permission, form, rules)
            if rule.action != "allow":
                return True
            if matches(form, rule.pattern):
                return False
    return False


def _denied(permission: str, pattern: str, rules: Sequence[Rule]) -> PermissionDeniedError:
    about = [rule for rule in rules if matches(permission, rule.permission)]
    shown = ", ".join(f"{rule.permission} {rule.pattern!r}: {rule.action}" for rule in about[-5:])
    return PermissionDeniedError(
        f"A rule of the user forbids {permission} for {pattern!r}; do not try to get around it (rules: {shown})",
        permission=permission,
        pattern=pattern,
        rules=about,
    )


def _rejected(asked: PermissionAsked, why: str = "the user refused it") -> PermissionRejectedError:
    shown = ", ".join(asked.patterns)
    return PermissionRejectedError(
        f"{asked.permission} was not allowed for {shown}: {why}", permission=asked.permission, id=asked.id
    )
