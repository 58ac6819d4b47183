"""Shares while a prompt is answered: kept up to date, and made if that was asked for."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncGenerator, Callable

    from ..engine.engine import Engine
    from ..sharing.share_settings import ShareSettings
    from .terminal import Keyboard


@asynccontextmanager
async def shares_kept(
    engine: Engine, options: Namespace, keyboard: Keyboard | None, tell: Callable[[str], None]
) -> AsyncGenerator[Callable[[str], str]]:
    """See to the shares of an engine's sessions. The answer is to be called with the session of the run, and gives it
    back."""
    from ..sharing.share_service import open_share_service
    from ..sharing.share_sync import ShareSync

    publisher = open_share_service(engine.sessions, engine.runtime.config)
    terms = publisher.terms
    if options.share:
        terms.check()
        await _agree(terms, options, keyboard)
    if terms.off:
        yield lambda session_id: session_id
        return
    if terms.unheard:
        tell(f"{terms.unheard} wants every session shared; that is for you to say, in a configuration of your own")
    async with publisher, ShareSync(publisher, engine.bus, tell=tell) as sharer:

        def begin(session_id: str) -> str:
            if options.share:
                sharer.share(session_id)
            return session_id

        yield begin


async def _agree(terms: ShareSettings, options: Namespace, keyboard: Keyboard | None) -> None:
    """Sharing with whom the user did not name is asked about."""
    if terms.own or options.yes:
        return
    if keyboard is None:
        raise UsageError(f"--share goes to {terms.in_words()}. Where nobody can be asked, --yes says that it may")

    def ask() -> None:
        print(f"Share this session at {terms.in_words()}? [y/N] ", end="", file=sys.stderr, flush=True)

    if (await keyboard.line(ask) or "").strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was shared, and nothing was run; leave out --share to run it")
