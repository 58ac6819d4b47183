"""Permission rules: written in the configuration, matched by pattern. The last rule that matches decides."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ..records import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .schema import Action, Permission

Rules = tuple[Rule, ...]
_WILD = re.compile(r"[*?]")

EDITING = frozenset(("edit", "write", "patch", "multiedit", "apply_patch"))
"""Tools that change files; the permission of all of them is ``edit``."""


def permission_of(tool: str) -> str:
    """The permission that a tool needs."""
    return "edit" if tool in EDITING else tool


def rules(permission: Permission | None, home: str) -> Rules:
    """The rules that a ``permission`` section states, in the order in which they are written.

    ``"ask"`` is one rule for everything, ``{"bash": "ask"}`` one for all of bash, and ``{"bash": {"git *": "allow"}}``
    one for what fits the pattern. A pattern that begins with ``~`` or ``$HOME`` begins with ``home``.
    """
    if permission is None:
        return ()
    if isinstance(permission, str):
        return (rule("*", permission),)
    return tuple(
        rule(name, action, _expand(pattern, home))
        for name, stated in permission.items()
        for pattern, action in _patterns(stated)
    )


def rule(permission: str, action: Action, pattern: str = "*") -> Rule:
    """One rule, for everything unless a pattern is given."""
    return Rule(permission=permission, pattern=pattern, action=action)


def followed(ruleset: Rules) -> Rules:
    """``ruleset`` with each rule about a directory that is reached by a link followed by one about where that leads.

    Tools ask for directories outside of the project by their real names.
    """
    return tuple(each for one in ruleset for each in (one, *_where_it_leads(one)))


def _where_it_leads(one: Rule) -> Rules:
    if one.permission != "external_directory" or not os.path.isabs(one.pattern):
        return ()
    fixed = os.path.dirname(_WILD.split(one.pattern, maxsplit=1)[0])
    real = os.path.realpath(fixed).replace(os.sep, "/")
    return () if real == fixed else (rule(one.permission, one.action, real + one.pattern[len(fixed) :]),)


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> re.Pattern[str]:
    # "ls *" is also the bare "ls".
    body, tail = (pattern[:-2], "(?: .*)?") if pattern.endswith(" *") else (pattern, "")
    expression = re.escape(body).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(expression + tail, re.DOTALL)


def matches(text: str, pattern: str) -> bool:
    """Whether all of ``text`` fits ``pattern``: ``*`` is any text, slashes and line breaks too, ``?`` any character."""
    return _compile(pattern).fullmatch(text) is not None


def decide(permission: str, subject: str, *rulesets: Iterable[Rule]) -> Rule:
    """The rule that decides about ``subject`` (a path, a command, ...): the last in all lists that fits; else one that
    asks."""
    decisive = rule(permission, "ask")
    for ruleset in rulesets:
        for each in ruleset:
            if matches(permission, each.permission) and matches(subject, each.pattern):
                decisive = each
    return decisive


def evaluate(permission: str, subject: str, *rulesets: Iterable[Rule]) -> Action:
    """What the rules say about ``subject``; ``ask`` if they say nothing."""
    return decide(permission, subject, *rulesets).action


def allowing(permission: str, ruleset: Iterable[Rule], approved: Iterable[Rule] = ()) -> Callable[[str], bool]:
    """Tells of any subject whether it is allowed: by ``ruleset``, or by what was ``approved`` where that does not
    forbid it. For many subjects: only the rules that may decide are looked at."""
    stated = [each for each in ruleset if matches(permission, each.permission)]
    in_all = [*stated, *(each for each in approved if matches(permission, each.permission))]

    def allowed(subject: str) -> bool:
        return _last(subject, stated) != "deny" and _last(subject, in_all) == "allow"

    return allowed


def _last(subject: str, ruleset: list[Rule]) -> str:
    return next((each.action for each in reversed(ruleset) if matches(subject, each.pattern)), "ask")


def _patterns(stated: Action | dict[str, Action]) -> Iterable[tuple[str, Action]]:
    return stated.items() if isinstance(stated, dict) else [("*", stated)]


def _expand(pattern: str, home: str) -> str:
    if pattern == "~" or pattern.startswith("~/"):
        return home + pattern[1:]
    return home + pattern[5:] if pattern.startswith("$HOME") else pattern
