"""Ways to log in to a provider, which plugins offer with the hook ``auth.methods``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec import Struct

from .hook_types import HookOutput

if TYPE_CHECKING:
    from ..records import Document

Credentials = dict[str, Any]
"""An entry of ``auth.json``: ``{"type": "oauth", "refresh": ..., "access": ..., "expires": ...}`` with the end of the
access token in milliseconds (0 for none), or ``{"type": "api", "key": ...}``."""


class AuthOption(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value to choose."""

    label: str
    value: str
    hint: str | None = None


class AuthCondition(Struct, frozen=True, kw_only=True):
    """Asks a question only after a certain answer to another one."""

    key: str
    op: Literal["eq", "neq"]
    value: str


class AuthPrompt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question to the user before a login begins."""

    key: str
    """The name of the answer in the inputs of ``authorize``."""
    message: str
    placeholder: str | None = None
    options: tuple[AuthOption, ...] = ()
    """The answers to choose from; none for a text."""
    when: AuthCondition | None = None


class Authorization(Struct, frozen=True, kw_only=True):
    """A login that has begun."""

    url: str
    """Where the user logs in."""
    instructions: str = ""
    callback: Callable[[str | None], Awaitable[Credentials | None]]
    """Called once, with the code of the user if ``method`` is ``code``. Returns what to store, or ``None`` if the login
    failed."""
    method: Literal["auto", "code"] = "auto"
    """``auto``: ``callback`` finds out itself whether the user has logged in. ``code``: the user enters a code."""


class AuthMethod(Struct, frozen=True, kw_only=True):
    """A way to log in to a provider."""

    provider_id: str
    label: str
    authorize: Callable[[dict[str, str]], Awaitable[Authorization]] | None = None
    """Begins a login, with the answers to ``prompts``. ``None``: the user enters an API key."""
    prompts: tuple[AuthPrompt, ...] = ()

    def document(self) -> Document:
        """Return the method for clients."""
        prompts = [
            {"type": "select" if prompt.options else "text", **cast("Document", msgspec.to_builtins(prompt))}
            for prompt in self.prompts
        ]
        kind = "api" if self.authorize is None else "oauth"
        return {"type": kind, "label": self.label} | ({"prompts": prompts} if prompts else {})


class AuthMethodsOutput(HookOutput, kw_only=True):
    """Ways to log in to providers."""

    methods: list[AuthMethod] = []

    def copied(self) -> AuthMethodsOutput:
        """Copy the list, not the methods."""
        return AuthMethodsOutput(methods=list(self.methods))

    def check(self) -> None:
        """Check that each is a method."""
        for method in cast("list[object]", self.methods):
            if not isinstance(method, AuthMethod):
                raise TypeError(f"{method!r} is not an AuthMethod")
