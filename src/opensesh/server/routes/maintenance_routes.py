"""Checks and repairs of the store, the trash, and what takes space on the disk. An extension of opensesh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...errors import NotFoundError
from ...history.maintenance.disk_usage import measure
from ...history.maintenance.doctor import diagnose, repair
from ...sessions import trash
from ...sessions.undo import take_back
from ..operations import Call, Routes
from ..responses import history_answer

if TYPE_CHECKING:
    from ...history.library import Library
    from ...records import Document
    from ...sessions.undo import Undone
    from ...storage.protocol import Store

routes = Routes()


class UndoBody(Struct, frozen=True):
    """The repair to reverse."""

    undo: str
    """The ``undo`` of a repair."""


class RestoreBody(Struct, frozen=True):
    """The sessions to restore."""

    sessions: list[str]


class EmptyBody(Struct, frozen=True):
    """The removed sessions to delete for good."""

    before: int | None = None
    """Only what was removed before this time, in milliseconds since 1970."""


@routes.get("/history/doctor", "history.doctor", response=dict[str, Any])
async def check_store(call: Call) -> object:
    """Check the store; nothing is changed."""
    return await history_answer(call, lambda library: doctor_document(library.store))


@routes.post("/history/doctor/fix", "history.doctor.fix", response=dict[str, Any])
async def fix_store(call: Call) -> object:
    """Repair what can be repaired safely. ``undo`` reverses it."""
    return await call.state.read_history(lambda library: repair(library.store).document())


@routes.post("/history/doctor/undo", "history.doctor.undo", response=dict[str, Any], errors=(400, 404))
async def undo_repair(call: Call, body: UndoBody) -> object:
    """Reverse a repair."""

    def undo(library: Library) -> Document:
        # The path is compared with those of known repairs, so that a client cannot name any other file.
        if body.undo not in {path for path, _ in trash.undo_files_of("doctor", library.store)}:
            raise NotFoundError("no repair of this store has that undo file")
        return _undone(take_back(body.undo, store=library.store))

    return await call.state.read_history(undo)


@routes.get("/history/disk", "history.disk", response=dict[str, Any])
async def measure_disk(call: Call) -> object:
    """Measure what takes space: by kind of record, tool and session, for each store."""

    def read(library: Library) -> Document:
        return {"stores": [usage.document() for usage in measure(library.store, report=library.report)]}

    return await history_answer(call, read)


@routes.get("/history/trash", "history.trash", response=dict[str, Any])
async def list_trash(call: Call) -> object:
    """List removed sessions, the latest removals first."""
    return await history_answer(call, lambda library: {"items": trash_items(library.store)})


@routes.post("/history/trash/restore", "history.trash.restore", response=dict[str, Any], errors=(400, 404))
async def restore_sessions(call: Call, body: RestoreBody) -> object:
    """Restore removed sessions."""

    def restore(library: Library) -> Document:
        undo_files = {item["session"]: item["undo"] for item in reversed(trash_items(library.store))}
        for session_id in body.sessions:
            if session_id not in undo_files:
                raise NotFoundError(f"{session_id} is not in the trash")
        results = [
            trash.restore(undo_files[name], name, store=library.store)
            for name in body.sessions
            # A session may have been restored with its parent just now.
            if any((item["session"], item["undo"]) == (name, undo_files[name]) for item in trash_items(library.store))
        ]
        left = [entry for result in results for entry in _undone(result)["left"]]
        return {"restored": sum(result.restored for result in results), "left": left}

    return await call.state.read_history(restore)


@routes.post("/history/trash/empty", "history.trash.empty", response=dict[str, Any], errors=(400,))
async def empty_trash(call: Call, body: EmptyBody) -> object:
    """Delete removed sessions for good, with their shares. This cannot be undone.

    A share that could not be taken down is listed with the error, and stays pending.
    """

    def empty(library: Library) -> Document:
        titles = {item.undo: item.titles for item in trash.contents(library.store)}
        deleted = trash.empty(library.store, body.before)
        return {"deleted": sum(len(titles.get(item.undo, {})) for item in deleted)}

    document = await call.state.read_history(empty)
    async with call.engine() as engine:
        shares = await engine.remove_pending_shares()
    return document | {"shares": [{"url": share.url, "error": share.error or None} for share in shares]}


def doctor_document(store: Store) -> Document:
    """Return the findings of a check, and the repairs that can be reversed, the latest first."""
    repairs = [{"undo": path, "time": header.time} for path, header in trash.undo_files_of("doctor", store)]
    return diagnose(store).document() | {"repairs": repairs[::-1]}


def trash_items(store: Store) -> list[Document]:
    """Return the removed sessions, the latest removals first."""
    return [
        {"session": session_id, "title": title, "time": item.time, "undo": item.undo}
        for item in reversed(trash.contents(store))
        for session_id, title in item.titles.items()
    ]


def _undone(result: Undone) -> Document:
    return {"restored": result.restored, "left": [damage._asdict() for damage in result.left]}
