"""Permission rules: written in the configuration, matched by pattern. The last rule that matches decides."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ..records import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .schema import Action, Permission

Rules = tuple[Rule, ...]


def rules(permission: Permission | None, home: str) -> Rules:
    """The rules that a ``permission`` section states, in the order in which they are written.

    ``"ask"`` is one rule for everything, ``{"bash": "ask"}`` one for all of bash, and ``{"bash": {"git *": "allow"}}``
    one for what fits the pattern. A pattern that begins with ``~`` or ``$HOME`` begins with ``home``.
    """
    if permission is None:
        return ()
    if isinstance(permission, str):
        return (Rule(permission="*", pattern="*", action=permission),)
    return tuple(
        Rule(permission=name, pattern=_expand(pattern, home), action=action)
        for name, stated in permission.items()
        for pattern, action in _patterns(stated)
    )


def rule(permission: str, action: Action, pattern: str = "*") -> Rule:
    """One rule, for everything unless a pattern is given."""
    return Rule(permission=permission, pattern=pattern, action=action)


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> re.Pattern[str]:
    # "ls *" is also the bare "ls".
    body, tail = (pattern[:-2], "(?: .*)?") if pattern.endswith(" *") else (pattern, "")
    expression = re.escape(body).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(expression + tail, re.DOTALL)


def matches(text: str, pattern: str) -> bool:
    """Whether all of ``text`` fits ``pattern``: ``*`` is any text, slashes and line breaks too, ``?`` any character."""
    return _compile(pattern).fullmatch(text) is not None


def evaluate(permission: str, subject: str, *rulesets: Iterable[Rule]) -> Action:
    """What the rules say about ``subject`` (a path, a command, ...); ``ask`` if they say nothing."""
    action: Action = "ask"
    for ruleset in rulesets:
        for each in ruleset:
            if matches(permission, each.permission) and matches(subject, each.pattern):
                action = each.action
    return action


def _patterns(stated: Action | dict[str, Action]) -> Iterable[tuple[str, Action]]:
    return stated.items() if isinstance(stated, dict) else [("*", stated)]


def _expand(pattern: str, home: str) -> str:
    if pattern == "~" or pattern.startswith("~/"):
        return home + pattern[1:]
    return home + pattern[5:] if pattern.startswith("$HOME") else pattern
