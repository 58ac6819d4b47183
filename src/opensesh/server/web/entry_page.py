"""Signing in: a ticket, or the server's password, becomes a cookie and a key."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from msgspec import Struct
from starlette.responses import RedirectResponse, Response

from ...asgi.requests import BodyError, read_body
from ...records import as_object, loads
from ..operations import Call, Routes
from ..responses import RequestError, json_response
from .browsers import SIGN_IN_SECONDS, TICKET_SECONDS
from .pages import GZIP_HEADERS, accepts_gzip, render, static_files

pages = Routes()
_MAX_FORM_BYTES = 4096
_FORM = "application/x-www-form-urlencoded"
_FOREVER = {"cache-control": "public, max-age=31536000, immutable"}


class NewTicket(Struct, frozen=True):
    """A ticket, and how long it is valid."""

    ticket: str
    seconds: int


@pages.get("/ui/enter", "ui.enter", response=None)
async def entry_page(call: Call) -> object:
    """Show the page that exchanges a ticket."""
    call.state.history.warm_up()
    return _entry_form(call, HTTPStatus.OK)


@pages.post("/ui/enter", "ui.signIn", response=None)
async def sign_in(call: Call) -> object:
    """Exchange a ticket, or the password of the server, for a cookie and a key."""
    is_form, code = await _read_code(call)
    credentials = call.state.credentials
    browsers = call.state.browsers
    is_valid = browsers.redeem(code) or (credentials is not None and credentials.accepts_password(code))
    if not is_valid:
        failure = "The code was used before, or is older than two minutes. 'opensesh web' prints a new one."
        if is_form:
            return _entry_form(call, HTTPStatus.FORBIDDEN, failure)
        raise RequestError(403, "ForbiddenError", failure)
    headers = call.request.headers
    cookie, key = browsers.sign_in(headers.get("user-agent", ""))
    response = RedirectResponse("/ui/", HTTPStatus.SEE_OTHER) if is_form else json_response({"key": key})
    response.set_cookie(
        browsers.cookie_name,
        cookie,
        max_age=SIGN_IN_SECONDS,
        httponly=True,
        samesite="strict",
        secure=headers.get("origin", "").startswith("https:"),
    )
    return response


@pages.post("/ui/tickets", "ui.ticket", response=NewTicket)
async def issue_ticket(call: Call) -> object:
    """Issue a ticket to a program that knows the control token of the server."""
    scheme, _, token = call.request.headers.get("authorization", "").partition(" ")
    expected = call.state.browsers.control_token
    if scheme.lower() != "bearer" or not hmac.compare_digest(token.encode(), expected.encode()):
        raise RequestError(401, "UnauthorizedError", "the control token is missing or wrong")
    call.state.history.warm_up()  # a browser will ask for the list of sessions next
    return {"ticket": call.state.browsers.issue_ticket(), "seconds": TICKET_SECONDS}


@pages.get("/ui/static/{digest}/{name}", "ui.static", response=None)
async def static_file(call: Call) -> object:
    """Serve a script, style or picture."""
    file = static_files().get(call.parameters["name"])
    if file is None:
        raise RequestError(404, "NotFoundError", f"there is no file {call.parameters['name']}")
    if accepts_gzip(call.request):
        return Response(file.compressed, headers=_FOREVER | GZIP_HEADERS, media_type=file.media_type)
    return Response(file.content, headers=_FOREVER, media_type=file.media_type)


def _entry_form(call: Call, status: HTTPStatus, failure: str = "") -> Response:
    response = render(
        call, "enter.html", status=status, failure=failure, has_password=call.state.credentials is not None
    )
    # Without a referrer, browsers send forms with the origin "null".
    response.headers["referrer-policy"] = "same-origin"
    return response


async def _read_code(call: Call) -> tuple[bool, str]:
    """Return whether a form was sent, and the code in it."""
    request = call.request
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        content = await read_body(request, _MAX_FORM_BYTES)
    except BodyError as error:
        raise RequestError(error.status, "BadRequest", error.reason) from None
    if media_type == _FORM:
        return True, parse_qs(content.decode(errors="replace")).get("code", [""])[0].strip()
    if media_type != "application/json":
        raise RequestError(415, "BadRequest", "the body must be JSON or a form")
    document: Any = as_object(loads(content)) or {}
    return False, str(document.get("code", ""))
