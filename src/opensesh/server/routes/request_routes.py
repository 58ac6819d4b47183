"""Permission requests and questions that wait for a user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ...errors import NotFoundError
from ...records import View
from ..operations import Call, Routes

if TYPE_CHECKING:
    from ...engine.engine import Engine

routes = Routes()


class PermissionRequest(View, frozen=True, kw_only=True):
    """A tool call that needs permission."""

    id: str
    session_id: str
    permission: str
    patterns: list[str]
    metadata: dict[str, Any]
    always: list[str]
    tool: dict[str, Any] | None = None


class QuestionRequest(View, frozen=True, kw_only=True):
    """Questions of a model."""

    id: str
    session_id: str
    questions: list[dict[str, Any]]
    tool: dict[str, Any] | None = None


class PermissionReply(Struct, frozen=True):
    """The user's decision."""

    reply: Literal["once", "always", "reject"]
    message: str | None = None
    """What to do instead, with a rejection."""


class PermissionResponse(Struct, frozen=True):
    """The user's decision, in the older form."""

    response: Literal["once", "always", "reject"]


class QuestionReply(Struct, frozen=True):
    """The labels that the user chose, for each question."""

    answers: list[list[str]]


@routes.get("/permission", "permission.list", response=list[PermissionRequest])
async def list_permissions(call: Call) -> object:
    """List the permission requests that wait for a reply."""
    async with call.engine() as engine:
        return engine.permissions()


@routes.post("/permission/{requestID}/reply", "permission.reply", response=bool, errors=(400, 404))
async def reply_permission(call: Call, body: PermissionReply) -> object:
    """Answer a permission request."""
    request_id = call.parameters["requestID"]
    _engine_with(call, request_id).reply_permission(request_id, body.reply, body.message)
    return True


@routes.post("/session/{sessionID}/permissions/{permissionID}", "permission.respond", response=bool, errors=(400, 404))
async def respond_permission(call: Call, body: PermissionResponse) -> object:
    """Answer a permission request of a session, in the older form."""
    request_id = call.parameters["permissionID"]
    _engine_with(call, request_id).reply_permission(request_id, body.response)
    return True


@routes.get("/question", "question.list", response=list[QuestionRequest])
async def list_questions(call: Call) -> object:
    """List the questions that wait for a reply."""
    async with call.engine() as engine:
        return engine.questions()


@routes.post("/question/{requestID}/reply", "question.reply", response=bool, errors=(400, 404))
async def reply_question(call: Call, body: QuestionReply) -> object:
    """Answer questions."""
    request_id = call.parameters["requestID"]
    _engine_with(call, request_id).reply_question(request_id, body.answers)
    return True


@routes.post("/question/{requestID}/reject", "question.reject", response=bool, errors=(400, 404))
async def reject_question(call: Call) -> object:
    """Dismiss questions."""
    request_id = call.parameters["requestID"]
    _engine_with(call, request_id).reject_question(request_id)
    return True


def _engine_with(call: Call, request_id: str) -> Engine:
    """Return the engine with a pending request, of any directory."""
    for engine in call.state.pool.engines().values():
        if any(pending["id"] == request_id for pending in (*engine.permissions(), *engine.questions())):
            return engine
    raise NotFoundError(f"no request {request_id} is waiting for a reply", id=request_id)
