"""``opensesh session ACTION --attach URL``: the action is done by a server, with its store and its files.

Any server with OpenCode's API will do; what only opensesh has (the trash, previews of reverts, undoing a compaction) is
an error with OpenCode's.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any
from urllib.parse import quote

import httpx2

from .. import ids
from ..errors import BusyError, NotFoundError, OpenseshError, ReadOnlyStoreError, UsageError
from ..history.discovery import find_session
from ..history.user_times import parse_time
from ..records import Document, Session, as_object, loads, object_at, view
from ..sessions.undo import Undone
from ..storage.protocol import Damage, StoredMessage
from ..text import pluralize
from . import output
from .session_bulk import print_changed
from .session_diff import print_changes
from .session_revert import is_confirmed, previous_prompt, print_preview, print_result
from .session_trash import confirm_deletion, print_restored, print_trash
from .terminal import confirm, ensure_can_ask, error_stream

_NOT_WITH_ATTACH = {
    "reverted": "--reverted",
    "unattributed": "--unattributed",
    "no_redact": "--no-redact",
    "pending": "--pending",
    "project": "--project",
    "larger": "--larger",
    "archived": "--archived",
}
"""Options for which servers have no request."""
_ONLY_OPENSESH = {
    "archive": {"undo": "--undo"},
    "compact": {"undo": "--undo", "redo": "--redo"},
    "revert": {"dry_run": "--dry-run", "force": "--force", "keep_files": "--keep-files"},
}
_ALL_SESSIONS = 1_000_000
"""OpenCode lists only the newest sessions without a limit."""
_LAST_MESSAGES = 200
_ERRORS: dict[str, type[OpenseshError]] = {"SessionBusyError": BusyError, "ReadOnlyStoreError": ReadOnlyStoreError}
"""The exception for each name of a server's error."""
_ERRORS_BY_STATUS: dict[int, type[OpenseshError]] = {400: UsageError, 404: NotFoundError}


def run(options: Namespace) -> int:
    """Run the action on the server."""
    if options.store:
        raise UsageError("--store cannot be combined with --attach: the server decides that")
    if options.action == "move":
        raise UsageError("sessions cannot be moved through a server; stop it and leave out --attach")
    for name, option in _NOT_WITH_ATTACH.items():
        if getattr(options, name, None):
            raise UsageError(f"{option} cannot be combined with --attach: a server cannot do that")
    with _AttachedSessions(options.attach) as server:
        for name, option in _ONLY_OPENSESH.get(options.action, {}).items():
            if getattr(options, name):
                server.require_opensesh(option)
        return _ACTIONS[options.action](server, options)


def client_options(url: str, directory: str) -> Document:
    """Return the options of an HTTP client for requests about a directory, with the password of the environment."""
    password = os.environ.get("OPENCODE_SERVER_PASSWORD")
    user = os.environ.get("OPENCODE_SERVER_USERNAME") or "opencode"
    return {
        "base_url": url.rstrip("/"),
        "auth": (user, password) if password else None,
        "headers": {"x-opencode-directory": directory},
        "timeout": httpx2.Timeout(30, read=None),  # a compaction or a prompt may take any time
    }


def answer_of(response: httpx2.Response, url: str) -> Any:
    """Return the JSON of an answer. A failure raises the error that the command would raise without a server."""
    try:
        value = loads(response.content) if response.content else None
    except OpenseshError:
        value = None
    if response.status_code < 400:
        return value
    error = as_object(value) or {}
    message = object_at(error, "data").get("message") or response.text[:200]
    if response.status_code == 401:
        message = "the password is missing or wrong; set OPENCODE_SERVER_PASSWORD"
    kind = _ERRORS.get(str(error.get("name"))) or _ERRORS_BY_STATUS.get(response.status_code, OpenseshError)
    raise kind(f"{url} answered {response.status_code}: {message}")


class _AttachedSessions:
    """The sessions of a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx2.Client(**client_options(url, os.getcwd()))

    def __enter__(self) -> _AttachedSessions:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    @cached_property
    def is_opensesh(self) -> bool:
        """Whether the server has the operations under ``/history``. OpenCode answers unknown paths with a page."""
        document = as_object(self.request("GET", "/doc")) or {}
        return "/history/trash" in object_at(document, "paths")

    def require_opensesh(self, what: str) -> None:
        """Raise :class:`~opensesh.errors.UsageError` if the server is not opensesh."""
        if not self.is_opensesh:
            raise UsageError(f"{what} needs a server of opensesh, and {self.url} is another one")

    def request(self, method: str, path: str, body: Any = None, session: Session | None = None) -> Any:
        """Return the answer to a request: about the directory of the session, or about the current one."""
        headers = {"x-opencode-directory": session.directory} if session is not None and session.directory else None
        try:
            response = self._client.request(method, path, json=body, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise OpenseshError(f"{self.url} does not answer: {error}") from None
        return answer_of(response, self.url)

    def change(self, method: str, session: Session, operation: str = "", body: Any = None) -> Any:
        """Return the answer to an operation on one session."""
        return self.request(method, f"/session/{session.id}{operation}", body, session)

    def find(self, word: str) -> Session:
        """Return the session that ``word`` names. ``last`` is the newest of this project.

        OpenCode finds other names than whole ids in this project only.
        """
        if word.startswith("ses_"):
            with suppress(NotFoundError, UsageError):  # the beginning of an id
                return self.session(word)
        if word != "last" and self.is_opensesh:
            return self.session(self.request("GET", f"/history/sessions/{quote(word, safe='')}")["id"])
        documents: list[Document] = self.request("GET", f"/session?limit={_ALL_SESSIONS}")
        return self.session(find_session([view(one, Session) for one in documents], word, self.url).id)

    def session(self, session_id: str) -> Session:
        """Return the session with this id."""
        return view(self.request("GET", f"/session/{session_id}"), Session)

    def with_children(self, session: Session) -> list[Session]:
        """Return a session and those of its subagents at any depth."""
        sessions = [session]
        for parent in sessions:
            children = self.change("GET", parent, "/children")
            sessions += [view(child, Session) for child in children]
        return sessions

    def last_messages(self, session: Session) -> list[StoredMessage]:
        """Return the last messages of a session, oldest first."""
        documents: list[Document] = self.change("GET", session, f"/message?limit={_LAST_MESSAGES}")
        return [StoredMessage(document["info"], document["parts"]) for document in documents]


def _change_one(server: _AttachedSessions, options: Namespace) -> int:
    """Fork, rename or compact a session."""
    session = server.find(options.session)
    match options.action:
        case "fork":
            body = {"messageID": options.before} if options.before else {}
            session, done = view(server.change("POST", session, "/fork", body), Session), "forked"
        case "rename":
            title = " ".join(options.title).strip()
            if not title:
                raise UsageError("the title is empty")
            session, done = view(server.change("PATCH", session, "", {"title": title}), Session), "renamed"
        case _:
            done = _compact(server, session, undo=options.undo, redo=options.redo)
            session = server.session(session.id)
    if options.json:
        output.print_json(session.document)
    else:
        print(f"{session.id} {done}: {output.clip(session.title, 100)}")
    return 0


def _compact(server: _AttachedSessions, session: Session, *, undo: bool, redo: bool) -> str:
    if undo and redo:
        raise UsageError("--undo and --redo cannot be combined")
    if undo or redo:
        operation = "undo-compaction" if undo else "redo-compaction"
        server.request("POST", f"/history/sessions/{session.id}/{operation}", {}, session)
        return "restored to before its last compaction" if undo else "compacted again"
    messages = server.last_messages(session)
    models = [message.info["model"] for message in messages if message.info.get("role") == "user"]
    if not models:
        raise NotFoundError(f"session {session.id} has no prompt whose model could compact it", id=session.id)
    model = {"providerID": models[-1]["providerID"], "modelID": models[-1]["modelID"]}
    server.change("POST", session, "/summarize", model)
    known = {message.info["id"] for message in messages}
    new = [message.info for message in server.last_messages(session) if message.info["id"] not in known]
    summaries = [info for info in new if info.get("role") == "assistant" and info.get("summary")]
    error = as_object(summaries[-1].get("error")) if summaries else {"name": "the server wrote no summary"}
    if error is not None:
        reason = object_at(error, "data").get("message") or error.get("name")
        raise OpenseshError(f"session {session.id} was not compacted: {reason}", session=session.id)
    return "compacted"


def _diff(server: _AttachedSessions, options: Namespace) -> int:
    session = server.find(options.session)
    message: str | None = options.message
    if server.is_opensesh:
        query = f"?prompt={message}" if message else ""
        changes = server.request("GET", f"/history/sessions/{session.id}/changes{query}")["files"]
        files = [
            {name: file[name] for name in ("additions", "deletions", "status")}
            | {"file": file["path"], "patch": file["diff"]}
            for file in changes
        ]
    else:
        files = server.change("GET", session, f"/diff?messageID={message}" if message else "/diff")
    print_changes(files, options, stored_because="the server does not compare snapshots" if files else "")
    return 0


def _revert(server: _AttachedSessions, options: Namespace) -> int:
    session = server.find(options.session)
    target: Document = {}
    if options.action == "revert":
        target["messageID"] = options.message or previous_prompt(server.last_messages(session), session)
        if options.part:
            target["partID"] = options.part
    elif session.revert is None:
        raise NotFoundError(f"session {session.id} is not reverted", id=session.id)
    elif options.dry_run or options.force:
        raise UsageError("--dry-run and --force of unrevert cannot be combined with --attach: a server cannot do that")
    verb = f"{options.action}ed"
    if options.action == "revert" and server.is_opensesh:
        path = f"/history/sessions/{session.id}/revert"
        preview: Document = server.request("POST", f"{path}-preview", target, session)
        target |= {"token": preview.pop("token"), "files": not options.keep_files, "force": options.force}
        is_refused = not target["force"] and target["files"] and any(file["conflict"] for file in preview["files"])
        preview["files"] = [
            {"file": file["path"], "action": file["action"], "verdict": file["verdict"], "reason": file["reason"] or ""}
            for file in preview["files"]
        ]
        # Conflicts are an error of the server, before a question that would be useless.
        if options.dry_run or (not is_refused and not is_confirmed(preview, session, options)):
            return print_preview(preview, session, options)
        result = server.request("POST", path, target, session)
        return print_result(result["session"], preview, result["left"], result["kept"] or "", verb, options)
    if not options.yes:
        ensure_can_ask("files may be changed; confirm with --yes")
        print(output.session_line(session), file=sys.stderr)
        if not confirm(f"The server does not show beforehand which files change. {options.action.capitalize()}?"):
            print("Nothing was changed.", file=sys.stderr)
            return 1
    changed = server.change("POST", session, f"/{options.action}", target)
    if options.json:
        output.print_json({"session": changed})
    else:
        print(f"{session.id} {verb}")
    return 0


def _share(server: _AttachedSessions, options: Namespace) -> int:
    session = server.find(options.session)
    is_new = session.share is None
    if is_new and not options.yes:
        ensure_can_ask("this would share the session as the server is configured; confirm with --yes")
        print(f"{output.session_line(session)}\nwill be shared as {server.url} is configured.", file=sys.stderr)
        if not confirm("Share it?"):
            raise UsageError("nothing was shared")
    shared = view(server.change("POST", session, "/share"), Session).share
    if shared is None or not shared.url:
        raise OpenseshError(f"{server.url} did not share session {session.id}", session=session.id)
    if options.json:
        output.print_json({"sessionID": session.id, "url": shared.url, "new": is_new})
    else:
        print(shared.url)
    return 0


def _unshare(server: _AttachedSessions, options: Namespace) -> int:
    if not options.session:
        raise UsageError("name a session")
    session = server.find(options.session)
    if session.share is None or not session.share.url:
        raise NotFoundError(f"session {session.id} is not shared", id=session.id)
    server.change("DELETE", session, "/share")
    if options.json:
        share = {"sessionID": session.id, "url": session.share.url, "error": None}
        output.print_json({"takenDown": 1, "shares": [share]})
    else:
        print(f"{session.share.url} was removed.")
    return 0


# -- several sessions --------------------------------------------------------------------------------------------------


def _archive(server: _AttachedSessions, options: Namespace) -> int:
    named = _named_sessions(server, options)
    if options.undo:
        archived = [session.id for session in named if session.archived]
        result = server.request("POST", "/history/sessions/archive", {"sessions": archived, "archived": False})
        if options.json:
            output.print_json({"sessions": result["sessions"]})
        else:
            for session in named:
                state = "unarchived" if session.id in result["sessions"] else "is not archived"
                print(f"{session.id} {state}: {output.clip(session.title, 100)}")
        for one in result["left"]:
            print(f"{one['id']} not changed: {one['reason']}", file=error_stream())
        return 1 if result["left"] else 0
    answer: Document = {}
    if not options.dry_run and server.is_opensesh:
        body = {"sessions": [session.id for session in named], "archived": True}
        answer = server.request("POST", "/history/sessions/archive", body)
    elif not options.dry_run:
        for session in named:
            server.change("PATCH", session, "", {"time": {"archived": ids.now_ms()}})
    names = " ".join(answer.get("sessions", ()))
    return _print_changes(named, answer, "archived", [f"archive --undo {names}"] if names else [], options)


def _remove(server: _AttachedSessions, options: Namespace) -> int:
    named = _named_sessions(server, options)
    sessions = list({one.id: one for session in named for one in server.with_children(session)}.values())
    answer: Document = {}
    how = "moved to the trash" if server.is_opensesh else "deleted permanently"  # OpenCode has no trash
    if not options.dry_run and not options.yes:
        ensure_can_ask(f"{pluralize(len(sessions), 'session')} would be {how}; confirm with --yes")
        for session in sessions:
            print(f"  {output.session_line(session)}", file=sys.stderr)
        if not confirm(f"{pluralize(len(sessions), 'session')} will be {how}. Continue?"):
            print("Nothing was changed.", file=sys.stderr)
            return 1
    if not options.dry_run and server.is_opensesh:
        body = {"sessions": [session.id for session in named]}
        answer = server.request("POST", "/history/sessions/remove", body)
    elif not options.dry_run:
        for session in named:
            server.change("DELETE", session)
    return _print_changes(sessions, answer, how, [f"restore {undo}" for undo in answer.get("undo") or ()], options)


def _named_sessions(server: _AttachedSessions, options: Namespace) -> list[Session]:
    if options.before or options.empty or not options.session:
        raise UsageError("with --attach, name the sessions; filters such as --before need the store")
    return list({session.id: session for session in map(server.find, options.session)}.values())


def _print_changes(sessions: list[Session], answer: Document, verb: str, undo: list[str], options: Namespace) -> int:
    """Print what ``opensesh session archive`` and ``remove`` print, without the files, which only the server knows."""
    changed = [session for session in sessions if session.id in answer.get("sessions", (session.id,))]
    left = [(one["id"], one["reason"]) for one in answer.get("left", ())]
    summary = f"{verb}: {pluralize(len(changed), 'session')}."
    code = print_changed(changed, left, summary, options, undo=next(iter(answer.get("undo") or ()), ""))
    if not options.json:
        for action in undo:
            print(f"To undo: opensesh session {action} --attach {options.attach}")
    return code


def _removals(server: _AttachedSessions) -> list[Document]:
    """Return the removals in the trash, oldest first."""
    server.require_opensesh("the trash")
    removals: dict[str, Document] = {}
    for item in server.request("GET", "/history/trash")["items"]:
        removal = removals.setdefault(item["undo"], {"undo": item["undo"], "time": item["time"], "sessions": {}})
        removal["sessions"][item["session"]] = item["title"]
    return list(removals.values())[::-1]


def _restore(server: _AttachedSessions, options: Namespace) -> int:
    word: str = options.undo
    removals = _removals(server)
    if word == "last":
        chosen = list(removals[-1]["sessions"]) if removals else []
    elif os.sep in word:
        chosen = [name for removal in removals if removal["undo"] == word for name in removal["sessions"]]
    else:
        chosen = list({name: None for removal in removals for name in removal["sessions"] if name.startswith(word)})
        if len(chosen) > 1:
            raise NotFoundError(f"several sessions in the trash begin with {word!r}. 'session trash' lists them.")
    if not chosen:
        raise NotFoundError(f"the trash of {server.url} has no {word!r}. 'opensesh session trash --attach' lists it.")
    result = server.request("POST", "/history/trash/restore", {"sessions": chosen})
    left = [Damage(entry["path"], entry["reason"]) for entry in result["left"]]
    return print_restored(Undone(restored=result["restored"], left=left), options)


def _trash(server: _AttachedSessions, options: Namespace) -> int:
    before = parse_time(options.older, utc=options.utc) if options.older else None
    removals = [removal for removal in _removals(server) if before is None or removal["time"] < before]
    if options.empty and removals:
        confirm_deletion(removals, options)
        server.request("POST", "/history/trash/empty", {} if before is None else {"before": before})
        remaining = {removal["undo"] for removal in _removals(server)}
        removals = [removal for removal in removals if removal["undo"] not in remaining]
    print_trash(removals, options)
    return 0


_ACTIONS: dict[str, Callable[[_AttachedSessions, Namespace], int]] = {
    "fork": _change_one,
    "rename": _change_one,
    "compact": _change_one,
    "diff": _diff,
    "revert": _revert,
    "unrevert": _revert,
    "share": _share,
    "unshare": _unshare,
    "archive": _archive,
    "remove": _remove,
    "restore": _restore,
    "trash": _trash,
}
