"""Permission rules of the configuration, matched by pattern. The last matching rule decides."""

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
_STARS = re.compile(r"\*+")
_LONG_PATTERN = 1_000
_HOME = re.compile(r"\A(?:~(?=/|\Z)|\$HOME)")

EDITING = frozenset(("edit", "write", "patch", "multiedit", "apply_patch"))
"""Tools that change files; the permission of all of them is ``edit``."""


def permission_of(tool: str) -> str:
    """Return the permission that a tool needs."""
    return "edit" if tool in EDITING else tool


def rules(permission: Permission | None, home: str) -> Rules:
    """Return the rules of a ``permission`` section, in the order of the file.

    ``"ask"`` is one rule for everything, ``{"bash": "ask"}`` one for all of bash, and ``{"bash": {"git *": "allow"}}``
    one for what matches the pattern. A pattern that begins with ``~`` or ``$HOME`` begins with ``home``.
    """
    if permission is None:
        return ()
    if isinstance(permission, str):
        return (rule("*", permission),)
    section_rules: list[Rule] = []
    for name, value in permission.items():
        patterns: dict[str, Action] = value if isinstance(value, dict) else {"*": value}
        for pattern, action in patterns.items():
            section_rules.append(rule(name, action, _HOME.sub(lambda _: home, pattern)))
    return tuple(section_rules)


def rule(permission: str, action: Action, pattern: str = "*") -> Rule:
    """Return a rule, for everything unless a pattern is given."""
    return Rule(permission=permission, pattern=pattern, action=action)


def followed(ruleset: Rules) -> Rules:
    """Return ``ruleset`` with a rule for the target after each rule about a directory behind a link.

    Tools ask for directories outside of the project by their real paths.
    """
    resolved: list[Rule] = []
    for original in ruleset:
        resolved.append(original)
        if original.permission == "external_directory" and os.path.isabs(original.pattern):
            fixed = os.path.dirname(_WILD.split(original.pattern, maxsplit=1)[0])
            real = os.path.realpath(fixed).replace(os.sep, "/")
            if real != fixed:
                resolved.append(rule(original.permission, original.action, real + original.pattern[len(fixed) :]))
    return tuple(resolved)


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> re.Pattern[str]:
    # "ls *" is also the bare "ls".
    alternatives = (pattern[:-2], pattern) if pattern.endswith(" *") else (pattern,)
    expressions: list[str] = []
    for alternative in alternatives:
        # Matched without backtracking, because models and repositories supply both patterns and texts: each text
        # between two stars is looked for once, where it occurs first (an atomic group).
        first, *others = (re.escape(text).replace(r"\?", ".") for text in _STARS.split(alternative))
        inner = "".join(f"(?>.*?{text})" for text in others[:-1])
        expressions.append(first + inner + (f".*{others[-1]}" if others else ""))
    return re.compile("|".join(expressions), re.DOTALL)


def matches(text: str, pattern: str) -> bool:
    """Return whether ``text`` matches ``pattern``: ``*`` is any text, even line breaks, ``?`` any character."""
    if len(pattern) > _LONG_PATTERN and len(pattern.removesuffix(" *")) - pattern.count("*") > len(text):
        return False  # without compiling it, which takes seconds for a megabyte
    return _compile(pattern).fullmatch(text) is not None


def overlaps(one: str, other: str) -> bool:
    """Return whether some text matches both patterns."""
    if other.endswith(" *") and overlaps(one, other[:-2]):
        return True
    size = min(len(_WILD.split(one, maxsplit=1)[0]), len(_WILD.split(other, maxsplit=1)[0]))
    if one[:size] != other[:size]:  # true of almost all rules
        return False
    reached = {(size, size)}
    pending = [*reached]
    while pending:
        at, there = pending.pop()
        char, with_char = one[at : at + 1], other[there : there + 1]
        if not char and not with_char:
            return True
        steps = [(at + 1, there), *([(at, there + 1)] if with_char else [])] if char == "*" else []
        steps += [(at, there + 1), *([(at + 1, there)] if char else [])] if with_char == "*" else []
        if char and with_char and (char == with_char or "?" in (char, with_char)):
            steps.append((at + 1, there + 1))
        new = set(steps) - reached
        reached |= new
        pending += new
    return False


def decide(permission: str, subject: str, *rulesets: Iterable[Rule]) -> Rule:
    """Return the rule for ``subject`` (a path, a command, ...): the last match in all lists, or one that asks."""
    decisive = rule(permission, "ask")
    for ruleset in rulesets:
        for candidate in ruleset:
            if matches(permission, candidate.permission) and matches(subject, candidate.pattern):
                decisive = candidate
    return decisive


def evaluate(permission: str, subject: str, *rulesets: Iterable[Rule]) -> Action:
    """Return the action for ``subject``; ``ask`` if no rule matches."""
    return decide(permission, subject, *rulesets).action


def allowing(permission: str, ruleset: Iterable[Rule], approved: Iterable[Rule] = ()) -> Callable[[str], bool]:
    """Return a function that tells whether a subject is allowed: by ``ruleset``, or by ``approved`` where that does
    not deny it. For many subjects, because only rules for ``permission`` are examined."""
    relevant = [rule for rule in ruleset if matches(permission, rule.permission)]
    with_approved = [*relevant, *(rule for rule in approved if matches(permission, rule.permission))]

    def allowed(subject: str) -> bool:
        return _last_action(subject, relevant) != "deny" and _last_action(subject, with_approved) == "allow"

    return allowed


def _last_action(subject: str, ruleset: list[Rule]) -> str:
    return next((rule.action for rule in reversed(ruleset) if matches(subject, rule.pattern)), "ask")
