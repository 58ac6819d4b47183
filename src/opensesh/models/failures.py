"""What a refusal means: the right :class:`~opensesh.errors.ModelError`, its message, and whether to try again.

Keys and cookies never reach an error: its address, headers, body and message end up in stored sessions, which
people share.
"""

from __future__ import annotations

import re
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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

if TYPE_CHECKING:
    from collections.abc import Mapping

BODY_LIMIT = 64 * 1024
"""How many characters of an answer an error keeps."""

WEB_PAGE = "the server answered with a web page; is the base URL right, or is a proxy in the way?"

_SHOWN = 2_000

# One phrase or more for each vendor, since none has a code that the others share.
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
"""Providers that answer a prompt that is too long with 400 and not a word."""

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
"""The status that goes with the name of an error, for errors that arrive without one."""

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


class _Refusal(NamedTuple):
    """What an error object says, whoever wrote it."""

    text: str = ""
    names: tuple[str, ...] = ()
    """Codes and types, lower case, the most precise first."""
    status: int | None = None
    user_prompts_verbatim: bool = False
    """Whether ``text`` stands where vendors put a sentence for people, and needs no status beside it."""


def from_response(status: int, headers: Mapping[str, str], body: str, url: str, provider_id: str = "") -> ModelError:
    """The error for an answer that is not a success. Its headers are kept, in lower case."""
    kept = public_headers(headers)
    refusal = _read(_json(body))
    names = refusal.names + _amazon_name(kept)
    message = scrub(_message(status, refusal, body, provider_id))
    kind = _kind(status, names, message, provider_id, silent=not body.strip())
    return kind(
        message,
        status=status,
        headers=kept,
        body=scrub(body[:BODY_LIMIT]),
        url=public_url(url),
        retryable=_retryable(kind, status, names, kept, provider_id),
    )


def from_stream_error(payload: Mapping[str, Any] | str, provider_id: str = "", url: str = "") -> ModelError:
    """The error for an error object that arrives inside a stream which began well.

    Such an error is worth another try unless its name or code says that the request itself is at fault.
    """
    value: object = _json(payload) if isinstance(payload, str) else payload
    body = payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()
    refusal = _read(value)
    named = next((_STATUS_OF[name] for name in refusal.names if name in _STATUS_OF), None)
    status = refusal.status or named or 500
    message = scrub((refusal.text or body.strip())[:_SHOWN]) or "The provider broke off with an error"
    kind = _kind(status, refusal.names, message, provider_id)
    return kind(
        message,
        status=refusal.status,
        body=scrub(body[:BODY_LIMIT]),
        url=public_url(url),
        retryable=_retryable(kind, status, refusal.names, {}, provider_id),
    )


def unreadable(data: str, url: str) -> ModelConnectionError:
    """The error for an event that is JSON, but of no shape anyone knows."""
    where, said = public_url(url), scrub(data[:BODY_LIMIT])
    return ModelConnectionError(f"{where} sent an event that cannot be read: {said[:200]}", body=said, url=where)


def broken_off(url: str) -> ModelConnectionError:
    """The error for a stream that ended before its last event."""
    where = public_url(url)
    return ModelConnectionError(f"{where} ended the answer in the middle", url=where)


def is_overflow(message: str) -> bool:
    """Whether a provider means by ``message`` that the prompt is larger than the model's context."""
    return _OVERFLOW.search(message) is not None


def scrub(text: str, secrets: tuple[str, ...] = ()) -> str:
    """``text`` without ``secrets`` and without anything shaped like a key."""
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    return _KEY_SHAPED.sub(lambda found: f"{found['scheme'] or ''} [redacted]".lstrip(), text)


def secrets_in(url: str, headers: Mapping[str, str]) -> tuple[str, ...]:
    """What a request holds that must not be seen in an error, should the provider repeat it."""
    from urllib.parse import parse_qsl, urlsplit

    values = [value.strip() for name, value in headers.items() if name.lower() in _SECRET_HEADERS]
    values += [value.split(" ", 1)[1] for value in values if " " in value]
    values += [value for name, value in parse_qsl(urlsplit(url).query) if _SECRET_PARAMETER.search(name)]
    return tuple(value for value in values if len(value) >= 8)


def public_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """``headers`` in lower case, without those that hold secrets."""
    return {name.lower(): value for name, value in headers.items() if name.lower() not in _SECRET_HEADERS}


def public_url(url: str) -> str:
    """``url`` without user, password, fragment, and without query parameters that may be secret."""
    from urllib.parse import parse_qsl, urlencode, urlsplit

    scheme, place, path, query, _ = urlsplit(url)
    kept = [(name, value) for name, value in parse_qsl(query) if not _SECRET_PARAMETER.search(name)]
    ending = f"?{urlencode(kept)}" if kept else ""
    return f"{scheme}://{place.rpartition('@')[2]}{path}{ending}" if place else f"{path}{ending}"


def _json(body: str) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


def _read(value: object) -> _Refusal:
    """What was said, in any of the vendors' shapes: below ``error``, flat, in a list, or in a response object."""
    if isinstance(value, list):
        items = cast("list[object]", value)
        return _read(items[0]) if items else _Refusal()
    if not isinstance(value, dict):
        return _Refusal()
    outer = cast("dict[str, Any]", value)
    response = outer.get("response")
    if isinstance(response, dict):
        return _read(cast("dict[str, Any]", response))
    inner = outer.get("error")
    if isinstance(inner, dict):
        refusal = _fields(cast("dict[str, Any]", inner))
        if refusal.text:
            return refusal._replace(user_prompts_verbatim=True)
        outer = outer | cast("dict[str, Any]", inner)
    refusal = _fields(outer)
    if not refusal.text and isinstance(inner, str):
        return refusal._replace(text=inner)
    return refusal


def _fields(error: dict[str, Any]) -> _Refusal:
    said = [error.get(key) for key in ("message", "Message", "detail")]
    text = next((words for words in said if isinstance(words, str)), "")
    named = [error.get(key) for key in ("code", "status", "type", "__type")]
    inner = error.get("innererror")
    if isinstance(inner, dict):
        named.append(cast("dict[str, Any]", inner).get("code"))
    names = tuple(name.rpartition("#")[2].lower() for name in named if isinstance(name, str) and name != "error")
    status = next((number for number in named if isinstance(number, int) and 400 <= number <= 599), None)
    return _Refusal(text.strip(), names, status)


def _amazon_name(headers: Mapping[str, str]) -> tuple[str, ...]:
    name = headers.get("x-amzn-errortype", "").split(":", 1)[0].lower()
    return (name,) if name else ()


def _message(status: int, refusal: _Refusal, body: str, provider_id: str) -> str:
    if "github-copilot" in provider_id and status == 403:
        said = f": {refusal.text}" if refusal.text else ""
        return f"GitHub Copilot did not accept the sign-in; sign in again{said}"
    if refusal.user_prompts_verbatim:
        return refusal.text[:_SHOWN]
    phrase = _phrase(status)
    body = body.strip()
    if body[:1] == "<":
        return f"{phrase}: {WEB_PAGE}"
    detail = (refusal.text or body)[:_SHOWN]
    return f"{phrase}: {detail}" if phrase and detail else phrase or detail or "Unknown error"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Overloaded" if status == 529 else f"HTTP {status}"


def _kind(
    status: int, names: tuple[str, ...], message: str, provider_id: str, *, silent: bool = False
) -> type[ModelError]:
    said = " ".join((message, *names))
    mute = silent and status == 400 and provider_id.startswith(_SILENT_OVERFLOW)
    if status == 413 or mute or (status != 429 and is_overflow(said)):
        return ContextExceededError
    if status in (401, 403):
        return AuthFailedError
    if _FILTERED.search(said):
        return ContentFilteredError
    if status in (503, 529) or _OVERLOADED.search(said):
        return OverloadedError
    return RateLimitedError if status == 429 else ModelError


def _retryable(
    kind: type[ModelError], status: int, names: tuple[str, ...], headers: Mapping[str, str], provider_id: str
) -> bool:
    if kind in (ContextExceededError, AuthFailedError, ContentFilteredError) or not _OUT_OF_CREDIT.isdisjoint(names):
        return False
    asked = headers.get("x-should-retry")
    if asked in ("true", "false"):
        return asked == "true"
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
