"""Share a session and take it back, for ``opensesh session share`` and ``unshare``."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from typing import TYPE_CHECKING

from ..errors import AmbiguousError, NotFoundError, ShareError, UsageError
from . import confirm, output
from .arguments import SESSION
from .choose import find_session

if TYPE_CHECKING:
    from argparse import Namespace

    from ..config import Config
    from ..records import Session
    from ..sessions import Sessions
    from ..sharing.share_service import ShareResult, ShareService, UnshareResult
    from ..sharing.share_settings import ShareSettings
    from .arguments import Parser


def configure_share(parser: Parser) -> None:
    """Declare the arguments of ``share``."""
    parser.add_argument("session", metavar="S", help=SESSION)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--no-redact", action="store_true", help="send it as it is, secrets included")


def configure_unshare(parser: Parser) -> None:
    """Declare the arguments of ``unshare``."""
    parser.add_argument("session", nargs="?", metavar="S", help="a session, also one that is gone; or its link")
    parser.add_argument("--pending", action="store_true", help="all that could not be taken down so far")


def run_share(options: Namespace, sessions: Sessions, session: Session) -> int:
    """Share it, or bring its share up to date."""
    from ..sharing.share_service import open_share_service

    publisher = open_share_service(sessions, _config(session.directory))
    publisher.terms.check()
    if publisher.find(session.id) is None and not options.yes and not publisher.terms.own:
        _ask(publisher.terms, session, redact=not options.no_redact and publisher.terms.redact)
    shared = asyncio.run(_share(publisher, session.id, redact=False if options.no_redact else None))
    _tell_shared(shared, options)
    return 1 if shared.behind else 0


def run_unshare(options: Namespace, sessions: Sessions) -> int:
    """Take a share down; or all that are still to go."""
    if bool(options.session) == options.pending:
        raise UsageError("name a session, or say --pending for all shares that are still to be taken down")
    from ..sharing.share_service import open_share_service

    publisher = open_share_service(sessions, _config(""))
    if options.pending:
        done = asyncio.run(_retry(publisher))
        _tell_elsewhere(sessions)
    else:
        done = [_take_down(publisher, _named(sessions, options.session))]
    _tell_taken_back(done, options)
    if any(each.error for each in done):
        print(f"What still stands is {_tried_again(sessions)}.", file=sys.stderr)
        return 1
    return 0


def _take_down(publisher: ShareService, session_id: str) -> UnshareResult:
    try:
        return asyncio.run(_unshare(publisher, session_id))
    except ShareError as error:
        again = f"the link still stands, is {_tried_again(publisher.sessions)}"
        raise ShareError(f"{error.message}; {again}", status=error.status, retryable=error.retryable) from error


def _tried_again(sessions: Sessions) -> str:
    from ..history.maintenance.checks_shares import remedy

    return f"noted, and tried again by the next 'opensesh run', or by '{remedy(sessions.store)}'"


def take_down_removed(sessions: Sessions) -> None:
    """Take down the shares of sessions that were just removed; what cannot be done now is told, and stays noted."""
    from ..storage import revocations

    waiting = [share.url for _, share in revocations.waiting(sessions.store)]
    if not waiting:
        return
    from ..history.maintenance.checks_shares import remedy
    from ..retry import RetryPolicy
    from ..sharing.share_service import open_share_service

    publisher = open_share_service(sessions, _config(""), retry=RetryPolicy(max_retries=0))
    left = waiting
    if not publisher.terms.off:
        left = [each.url for each in asyncio.run(_retry(publisher)) if each.error]
    for url in waiting:
        if url in left:
            print(f"{url} still stands; '{remedy(sessions.store)}' tries again.", file=sys.stderr)
        else:
            print(f"{url} was taken down.", file=sys.stderr)


def _tell_elsewhere(sessions: Sessions) -> None:
    """Say which other stores have shares that wait."""
    from ..storage import revocations

    ours = {share.url for _, share in revocations.waiting(sessions.store)}
    others = {revocations.store_of(share) for _, share in revocations.waiting() if share.url not in ours}
    for store in sorted(others):
        print(f"Others wait in another store: --pending --store {shlex.quote(store)}", file=sys.stderr)


async def _share(publisher: ShareService, session_id: str, *, redact: bool | None) -> ShareResult:
    async with publisher:
        return await publisher.share(session_id, redact=redact)


async def _unshare(publisher: ShareService, session_id: str) -> UnshareResult:
    async with publisher:
        return await publisher.unshare(session_id)


async def _retry(publisher: ShareService) -> list[UnshareResult]:
    async with publisher:
        return await publisher.retry()


def _config(directory: str) -> Config:
    """The configuration of the folder a session is at home in; of this one, if that is gone."""
    from ..config import load
    from ..project import resolve

    place = resolve(directory if os.path.isdir(directory) else os.getcwd())
    return load(place.directory, place.sandbox)


def _ask(terms: ShareSettings, session: Session, *, redact: bool) -> None:
    confirm.need_somebody(f"this would be shared at {terms.in_words()}; say --yes where nobody can be asked")
    print(f"{output.clip(session.title, 100)} ({session.id})", file=sys.stderr)
    print(f"goes to {terms.in_words()}.", file=sys.stderr)
    kept = "Secrets that are recognised are taken out." if redact else "Secrets are NOT taken out."
    if not confirm.says_yes(f"{kept} Share it?"):
        raise UsageError("nothing was shared")


def _named(sessions: Sessions, word: str) -> str:
    """The session that a word names, also if only its share is left of it."""
    from ..sessions import trash
    from ..sharing import share_records as journal
    from ..storage import revocations

    removed = trash.shares()
    known = {name: share.url for name, share in revocations.waiting()}
    known |= {name: share.url for name, (share, _) in removed.items() if name not in known}
    known |= {each.session: each.url for each in journal.standing()}
    fits = [name for name, url in known.items() if word in (name, url) or _is_part(word, name)]
    try:
        return find_session(sessions.store, word).id
    except NotFoundError:
        if len(fits) > 1:
            raise AmbiguousError(word, fits) from None
        if not fits:
            raise
    if fits[0] in removed:
        share, root = removed[fits[0]]
        # Noted where it is looked for, although its session is in the trash.
        revocations.note(fits[0], share, store=root, why="unshared")
    return fits[0]


def _is_part(word: str, name: str) -> bool:
    return len(word) >= 4 and (name.startswith(word) or name.endswith(word))


def _tell_shared(shared: ShareResult, options: Namespace) -> None:
    if options.json:
        output.print_json(
            {
                "sessionID": shared.session,
                "url": shared.url,
                "new": shared.is_new,
                "sent": shared.sent,
                "redacted": shared.redacted,
                "tooLarge": shared.too_large,
                "behind": shared.behind or None,
            }
        )
        return
    print(shared.url)
    if shared.redacted:
        found = ", ".join(f"{count:,} {name}" for name, count in sorted(shared.redacted.items()))
        print(f"taken out: {found}", file=sys.stderr)
    for key in shared.too_large:
        print(f"{key} is too large for the server, and is not shared", file=sys.stderr)
    if shared.behind:
        print(f"The link stands, but not all is there yet: {shared.behind}. Share it again to go on.", file=sys.stderr)
    elif not shared.is_new:
        print(f"It was shared before; sent {output.pluralize(shared.sent, 'change')}.", file=sys.stderr)


def _tell_taken_back(done: list[UnshareResult], options: Namespace) -> None:
    if options.json:
        entries = [{"sessionID": each.session, "url": each.url, "error": each.error or None} for each in done]
        output.print_json({"takenDown": sum(not each.error for each in done), "shares": entries})
        return
    for each in done:
        print(f"{each.url} still stands: {each.error}" if each.error else f"{each.url} was taken down.")
    if not done:
        print("No share waits to be taken down.")
