"""From error responses to :class:`~opensesh.errors.ModelError`: class, message, whether a retry makes sense, and when.

Keys and cookies must not get into an error: its URL, headers, body and message are stored in sessions, which can be
shared.
"""

from __future__ import annotations

import re
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from ..errors import (
    AuthFailedError,
    ContentFilteredError,
    ContextExceededError,
    ModelConnectionError,
    ModelError,
    OverloadedError,
    RateLimitedError,
)
from ..ids import now_ms
from ..records import without_surrogates

if TYPE_CHECKING:
    from collections.abc import Mapping


BODY_LIMIT = 64 * 1024
"""How many characters of a response an error keeps."""

WEB_PAGE = "the server sent a web page; check the base URL, and whether there is a proxy in between"

_MESSAGE_LIMIT = 2_000

# At least one phrase for each vendor, since they share no error code.
_OVERFLOW = re.compile(
    "|".join(
        (
            r"prompt is too long",  # Anthropic
            r"input length and `?max_tokens`? exceed context limit",  # Anthropic
            r"input is too long for requested model",  # Bedrock
            r"input tokens exceeded",  # Bedrock, Nova
            r"exceeds the context window",  # OpenAI
            r"input tokens exceed the configured limit",  # OpenAI
            r"context[ _](?:length|window)[ _]exceeded",  # OpenAI's code, and many that copy it
            r"input token count.*exceeds the maximum",  # Gemini
            r"maximum prompt length is \d+",  # xAI
            r"reduce the length of the messages",  # Groq
            r"maximum context length is \d+ tokens",  # OpenRouter, DeepSeek, vLLM
            r"exceeds the limit of \d+",  # GitHub Copilot
            r"exceeds the available context size",  # llama.cpp
            r"greater than the context length",  # LM Studio
            r"exceed(?:s|ed)? max(?:imum)? context length",  # Ollama
            r"context window exceeds limit",  # MiniMax
            r"exceeded model token limit",  # Kimi, Moonshot
            r"too large for model with \d+ maximum context length",  # Mistral
            r"prompt exceeds max length",  # Z.ai
            r"range of input length should be",  # Alibaba
            r"total number of tokens in the prompt cannot exceed",  # Cohere
            r"`?inputs`? tokens \+ `?max_new_tokens`? must be <=",  # Together, TGI
            r"^4(?:00|13)\s*(?:status code)?\s*\(no body\)",  # Cerebras, Mistral
        )
    ),
    re.IGNORECASE | re.DOTALL,
)
_SILENT_OVERFLOW = ("cerebras", "mistral")
"""Providers that reject a prompt that is too long with status 400 and an empty body."""

_FILTERED = re.compile(
    r"content[ _](?:filter|policy)|content management policy|responsible.?ai.?policy|moderation_blocked"
    r"|data_inspection_failed|prohibited_content|blocked by content filtering",
    re.IGNORECASE,
)
_OVERLOADED = re.compile(r"overloaded|server_is_overloaded|engine_overloaded|\bat capacity\b", re.IGNORECASE)
_OUT_OF_CREDIT = frozenset(
    {"insufficient_quota", "usage_not_included", "billing_hard_limit_reached", "insufficient_credits"}
)

_STATUS_OF = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "api_error": 500,
    "authentication_error": 401,
    "permission_error": 403,
    "billing_error": 402,
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "not_found_error": 404,
    "request_too_large": 413,
    "timeout_error": 504,
    "server_error": 500,
    "rate_limit_exceeded": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "usage_not_included": 429,
    "invalid_api_key": 401,
    "unauthenticated": 401,
    "permission_denied": 403,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "not_found": 404,
    "resource_exhausted": 429,
    "unavailable": 503,
    "deadline_exceeded": 504,
    "internal": 500,
    "throttlingexception": 429,
    "validationexception": 400,
    "accessdeniedexception": 403,
    "unrecognizedclientexception": 403,
    "expiredtokenexception": 403,
    "resourcenotfoundexception": 404,
    "servicequotaexceededexception": 400,
    "serviceunavailableexception": 503,
    "modelnotreadyexception": 429,
    "modeltimeoutexception": 408,
    "modelerrorexception": 424,
    "modelstreamerrorexception": 424,
    "internalserverexception": 500,
}
"""The status for the name of an error, for errors inside a stream, which have none."""

_RETRYABLE_NAMES = frozenset({"modelerrorexception", "modelstreamerrorexception", "modelnotreadyexception"})

_SECRET_HEADERS = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "x-amz-security-token",
        "cookie",
        "set-cookie",
    }
)
_SECRET_PARAMETER = re.compile(r"key|token|secret|sig|password|credential|auth|code", re.IGNORECASE)
_KEY_SHAPED = re.compile(
    r"\b(?:(?:sk|pk|rk|gsk|xai|ghp|gho|ghu|github_pat)[-_.]|ABSK|AIza|ya29)[A-Za-z0-9_.\-]{16,}=*"
    r"|\b(?P<scheme>bearer|basic)\s+[A-Za-z0-9._~+/\-]{16,}=*",
    re.IGNORECASE,
)

_RESET_HEADERS = (
    "anthropic-ratelimit-unified-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-reset",
)


class _ErrorDetails(NamedTuple):
    """The contents of a vendor's error object."""

    text: str = ""
    names: tuple[str, ...] = ()
    """Codes and types in lower case, the most precise first."""
    status: int | None = None
    is_message: bool = False
    """Whether ``text`` is a message for people, which needs no status in front of it."""


def from_response(status: int, headers: Mapping[str, str], body: str, url: str, provider_id: str = "") -> ModelError:
    """Return the error for an unsuccessful response. It keeps the headers, in lower case."""
    public = public_headers(headers)
    details = _error_details(_decode(body))
    amazon_name = public.get("x-amzn-errortype", "").split(":", 1)[0].lower()
    names = (*details.names, amazon_name) if amazon_name else details.names
    message = scrub(_message(status, details, body, provider_id))
    kind = _error_class(status, names, message, provider_id, empty=not body.strip())
    return kind(
        message,
        status=status,
        headers=public,
        body=scrub(body[:BODY_LIMIT]),
        url=public_url(url),
        retryable=_retryable(kind, status, names, public, provider_id),
    )


def from_stream_error(payload: Mapping[str, Any] | str, provider_id: str = "", url: str = "") -> ModelError:
    """Return the error for an error object inside a stream.

    It is retryable unless its name or code blames the request.
    """
    value: object = _decode(payload) if isinstance(payload, str) else payload
    body = payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()
    details = _error_details(value)
    by_name = next((_STATUS_OF[name] for name in details.names if name in _STATUS_OF), None)
    status = details.status or by_name or 500
    message = scrub((details.text or body.strip())[:_MESSAGE_LIMIT]) or "The provider ended the stream with an error"
    kind = _error_class(status, details.names, message, provider_id)
    return kind(
        message,
        status=details.status,
        body=scrub(body[:BODY_LIMIT]),
        url=public_url(url),
        retryable=_retryable(kind, status, details.names, {}, provider_id),
    )


def unreadable(data: str, url: str) -> ModelConnectionError:
    """Return the error for an event that is JSON of an unknown shape."""
    where, body = public_url(url), scrub(data[:BODY_LIMIT])
    return ModelConnectionError(f"{where} sent an unreadable event: {body[:200]}", body=body, url=where)


def broken_off(url: str) -> ModelConnectionError:
    """Return the error for a stream that ended before its last event."""
    where = public_url(url)
    return ModelConnectionError(f"{where} ended the stream before the answer was complete", url=where)


def is_overflow(message: str) -> bool:
    """Return whether ``message`` says that the prompt is larger than the model's context."""
    return _OVERFLOW.search(message) is not None


def scrub(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Remove ``secrets``, everything that looks like a key, and lone surrogates, which cannot be printed."""
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    text = _KEY_SHAPED.sub(lambda match: f"{match['scheme'] or ''} [redacted]".lstrip(), text)
    return without_surrogates(text)


def secrets_in(url: str, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets of a request, which must not show in an error if the provider repeats them."""
    values = [value.strip() for name, value in headers.items() if name.lower() in _SECRET_HEADERS]
    values += [value.split(" ", 1)[1] for value in values if " " in value]
    values += [value for name, value in parse_qsl(urlsplit(url).query) if _SECRET_PARAMETER.search(name)]
    return tuple(value for value in values if len(value) >= 8)


def public_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return ``headers`` with lower-case names, without secret ones."""
    return {name.lower(): value for name, value in headers.items() if name.lower() not in _SECRET_HEADERS}


def public_url(url: str) -> str:
    """Return ``url`` without user, password, fragment, and possibly secret query parameters."""
    scheme, host, path, query, _ = urlsplit(url)
    public = [(name, value) for name, value in parse_qsl(query) if not _SECRET_PARAMETER.search(name)]
    ending = f"?{urlencode(public)}" if public else ""
    return f"{scheme}://{host.rpartition('@')[2]}{path}{ending}" if host else f"{path}{ending}"


def _decode(body: str) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


def _error_details(value: object) -> _ErrorDetails:
    """Read an error object in any vendor's shape: below ``error``, flat, in a list, or in a response object."""
    if isinstance(value, list):
        items = cast("list[object]", value)
        return _error_details(items[0]) if items else _ErrorDetails()
    if not isinstance(value, dict):
        return _ErrorDetails()
    outer = cast("dict[str, Any]", value)
    response = outer.get("response")
    if isinstance(response, dict):
        return _error_details(cast("dict[str, Any]", response))
    inner = outer.get("error")
    if isinstance(inner, dict):
        details = _fields(cast("dict[str, Any]", inner))
        if details.text:
            return details._replace(is_message=True)
        outer = outer | cast("dict[str, Any]", inner)
    details = _fields(outer)
    return details._replace(text=inner) if not details.text and isinstance(inner, str) else details


def _fields(error: dict[str, Any]) -> _ErrorDetails:
    messages = [error.get(key) for key in ("message", "Message", "detail")]
    text = next((message for message in messages if isinstance(message, str)), "")
    codes = [error.get(key) for key in ("code", "status", "type", "__type")]
    inner = error.get("innererror")
    if isinstance(inner, dict):
        codes.append(cast("dict[str, Any]", inner).get("code"))
    names = tuple(name.rpartition("#")[2].lower() for name in codes if isinstance(name, str) and name != "error")
    status = next((number for number in codes if isinstance(number, int) and 400 <= number <= 599), None)
    return _ErrorDetails(text.strip(), names, status)


def _message(status: int, details: _ErrorDetails, body: str, provider_id: str) -> str:
    if "github-copilot" in provider_id and status == 403:
        detail = f": {details.text}" if details.text else ""
        return f"GitHub Copilot did not accept the login; log in again{detail}"
    if details.is_message:
        return details.text[:_MESSAGE_LIMIT]
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Overloaded" if status == 529 else f"HTTP {status}"
    body = body.strip()
    if body[:1] == "<":
        return f"{phrase}: {WEB_PAGE}"
    detail = (details.text or body)[:_MESSAGE_LIMIT]
    return f"{phrase}: {detail}" if phrase and detail else phrase or detail or "Unknown error"


def _error_class(
    status: int, names: tuple[str, ...], message: str, provider_id: str, *, empty: bool = False
) -> type[ModelError]:
    text = " ".join((message, *names))
    silent_overflow = empty and status == 400 and provider_id.startswith(_SILENT_OVERFLOW)
    if status == 413 or silent_overflow or (status != 429 and is_overflow(text)):
        return ContextExceededError
    if status in (401, 403):
        return AuthFailedError
    if _FILTERED.search(text):
        return ContentFilteredError
    if status in (503, 529) or _OVERLOADED.search(text):
        return OverloadedError
    return RateLimitedError if status == 429 else ModelError


def _retryable(
    kind: type[ModelError], status: int, names: tuple[str, ...], headers: Mapping[str, str], provider_id: str
) -> bool:
    if kind in (ContextExceededError, AuthFailedError, ContentFilteredError) or not _OUT_OF_CREDIT.isdisjoint(names):
        return False
    should_retry = headers.get("x-should-retry")
    if should_retry in ("true", "false"):
        return should_retry == "true"
    if not _RETRYABLE_NAMES.isdisjoint(names) or kind is OverloadedError:
        return True
    return status in (408, 409, 429) or status >= 500 or (status == 404 and provider_id.startswith("openai"))


def retry_after_ms(headers: Mapping[str, str], now: int | None = None, *, limited: bool = True) -> int | None:
    """Return how many milliseconds the server asks to wait before the next try, or ``None``.

    Rate limit reset headers come with every response of some providers, so they count only when ``limited``: the
    response was about that limit. Times are compared with the server's own ``date`` header where there is one, since
    the local clock may be wrong by days.
    """
    server_now = _http_date(headers.get("date") or "")
    now = server_now if server_now is not None else now_ms() if now is None else now
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return int(milliseconds)
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None:
        return int(-(-seconds * 1000 // 1))
    times = [_http_date(text)] if text else [_reset_time(headers.get(name), now) for name in _RESET_HEADERS if limited]
    return next((moment - now for moment in times if moment is not None and moment > now), None)


def _number(text: str | None, limit: float = 1e9) -> float | None:
    try:
        number = float(text) if text else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < limit else None


def _http_date(text: str) -> int | None:
    from email.utils import parsedate_to_datetime  # loads the email package, needed only after an error

    try:
        return int(parsedate_to_datetime(text).timestamp() * 1000)
    except (ValueError, TypeError, OverflowError):
        return None


def _reset_time(text: str | None, now: int) -> int | None:
    """Parse a reset time: seconds or milliseconds since 1970, seconds from now, ``1m30s``, or an ISO date."""
    if not text:
        return None
    number = _number(text, limit=1e15)
    if number is not None:
        since_1970 = number if number > 1e11 else number * 1000
        return int(since_1970) if number > 1e8 else now + int(number * 1000)
    spans = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", text)
    if spans and any(spans.groups()):
        hours, minutes, seconds = (float(span or 0) for span in spans.groups())
        return now + int((hours * 3600 + minutes * 60 + seconds) * 1000)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None
