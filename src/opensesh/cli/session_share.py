"""Share a session, and remove shares from the server."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from argparse import Namespace

from ..config import Config, load
from ..errors import AmbiguousError, NotFoundError, ShareError, UsageError
from ..history.library import Library
from ..history.maintenance.findings import unshare_command
from ..project import resolve
from ..retry import RetryPolicy
from ..sessions import Sessions, trash
from ..sharing import share_records
from ..sharing.share_service import ShareResult, ShareService, UnshareResult, open_share_service
from ..storage import revocations
from ..text import pluralize
from . import output
from .command_arguments import named_session
from .terminal import confirm, ensure_can_ask, error_stream


def run(options: Namespace, sessions: Sessions) -> int:
    """Share a session, or remove a share."""
    return _share(options, sessions) if options.action == "share" else _unshare(options, sessions)


def _share(options: Namespace, sessions: Sessions) -> int:
    """Share a session, or update its share."""
    session = named_session(Library(store=sessions.store), options.session, to_change=True).record
    sessions.refuse_running([session.id])
    service = open_share_service(sessions, _config(session.directory))
    service.settings.check()
    if service.find(session.id) is None and not options.yes and not service.settings.chosen_by_user:
        server = service.settings.describe()
        ensure_can_ask(f"this would share the session at {server}; confirm with --yes")
        print(f"{output.session_line(session)}\nwill be sent to {server}.", file=sys.stderr)
        redact = service.settings.redact and not options.no_redact
        warning = "Recognized secrets are redacted." if redact else "Secrets are NOT redacted."
        if not confirm(f"{warning} Share it?"):
            raise UsageError("nothing was shared")

    async def share() -> ShareResult:
        async with service:
            return await service.share(session.id, redact=False if options.no_redact else None)

    shared = asyncio.run(share())
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
        return 1 if shared.behind else 0
    print(shared.url)
    if shared.redacted:
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(shared.redacted.items()))
        print(f"redacted: {counts}", file=sys.stderr)
    for key in shared.too_large:
        print(f"{key} is too large for the server and was not sent", file=error_stream())
    if shared.behind:
        print(f"The share is incomplete: {shared.behind}. Share it again to send the rest.", file=error_stream())
    elif not shared.is_new:
        print(f"It was already shared; sent {pluralize(shared.sent, 'change')}.", file=sys.stderr)
    return 1 if shared.behind else 0


def _config(directory: str) -> Config:
    """Return the configuration of a session's directory, or of the current one if that is gone."""
    location = resolve(directory if os.path.isdir(directory) else os.getcwd())
    return load(location.directory, location.sandbox)


def _unshare(options: Namespace, sessions: Sessions) -> int:
    """Remove one share, or all whose removal is pending."""
    if bool(options.session) == options.pending:
        raise UsageError("name a session, or use --pending for all shares whose removal is pending")
    service = open_share_service(sessions, _config(""))
    again = f"it is retried by the next 'opensesh run', or with '{unshare_command(sessions.store)}'"
    if options.pending:
        results = asyncio.run(_retry(service))
        ours = {share.url for _, share in revocations.waiting(sessions.store)}
        others = {revocations.store_of(share) for _, share in revocations.waiting() if share.url not in ours}
        for store in sorted(others):
            print(f"More are pending in another store: --pending --store {shlex.quote(store)}", file=sys.stderr)
    else:
        session_id = _find_shared(sessions, options.session)
        sessions.refuse_running([session_id])

        async def unshare() -> UnshareResult:
            async with service:
                return await service.unshare(session_id)

        try:
            results = [asyncio.run(unshare())]
        except ShareError as error:
            message = f"{error.message}; the share still exists; {again}"
            raise ShareError(message, status=error.status, retryable=error.retryable) from error
    failed = [result for result in results if result.error]
    if options.json:
        entries = [{"sessionID": one.session, "url": one.url, "error": one.error or None} for one in results]
        output.print_json({"takenDown": len(results) - len(failed), "shares": entries})
    else:
        for result in results:
            print(f"{result.url} still exists: {result.error}" if result.error else f"{result.url} was removed.")
        if not results:
            print("No shares are pending removal.")
    if failed:
        print(f"Removal failed; {again}.", file=error_stream())
    return 1 if failed else 0


async def _retry(service: ShareService) -> list[UnshareResult]:
    async with service:
        return await service.retry()


def _find_shared(sessions: Sessions, word: str) -> str:
    """Return the id of the session that a word names, even if only its share is left."""
    removed = trash.shares()
    urls = {session_id: share.url for session_id, share in revocations.waiting()}
    urls |= {session_id: share.url for session_id, (share, _) in removed.items() if session_id not in urls}
    urls |= {record.session: record.url for record in share_records.list_all()}
    matches = [
        session_id
        for session_id, url in urls.items()
        if word in (session_id, url) or (len(word) >= 4 and (session_id.startswith(word) or session_id.endswith(word)))
    ]
    try:
        return named_session(Library(store=sessions.store), word, to_change=True).id
    except NotFoundError:
        if len(matches) > 1:
            raise AmbiguousError(word, dict.fromkeys(matches, "")) from None
        if not matches:
            raise
    if matches[0] in removed:
        share, root = removed[matches[0]]
        # The service looks for the shares of removed sessions among the pending removals.
        revocations.note(matches[0], share, store=root, why="unshared")
    return matches[0]


def unshare_deleted(sessions: Sessions) -> None:
    """Remove the shares of sessions that were just deleted; print which could not be removed and stay pending."""
    pending = [share.url for _, share in revocations.waiting(sessions.store)]
    if not pending:
        return
    service = open_share_service(sessions, _config(""), retry=RetryPolicy(max_retries=0))
    failed = pending
    if not service.settings.disabled_by:
        failed = [result.url for result in asyncio.run(_retry(service)) if result.error]
    for url in pending:
        state = f"still exists; '{unshare_command(sessions.store)}' tries again" if url in failed else "was removed"
        print(f"{url} {state}.", file=sys.stderr)
