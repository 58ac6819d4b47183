from __future__ import annotations

import json
from typing import Any

import pytest

from opensesh.errors import (
    AuthFailedError,
    ContentFilteredError,
    ContextExceededError,
    ModelError,
    OverloadedError,
    RateLimitedError,
)
from opensesh.models.failures import BODY_LIMIT, from_response, from_stream_error, is_overflow

URL = "https://api.test/v1/messages"


def said(message: str, **fields: Any) -> str:
    return json.dumps({"type": "error", "error": {"message": message, **fields}})


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
        "The model returned the following errors: Input is too long for requested model.",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "Input tokens exceed the configured limit of 272000 tokens.",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens.",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "Please reduce the length of the messages or completion.",
        "This endpoint's maximum context length is 163840 tokens. However, you requested about 200002 tokens",
        "prompt token count of 140101 exceeds the limit of 128000",
        "the request exceeds the available context size, try increasing it",
        "tokens to keep from the initial prompt is greater than the context length",
        "invalid params, context window exceeds limit",
        "Your request exceeded model token limit: 131072",
        "context_length_exceeded",
        "Context length exceeded",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        "Range of input length should be [1, 98304]",
        "prompt too long; exceeded max context length by 12 tokens",
        "400 status code (no body)",
        "413 (no body)",
    ],
)
def test_every_vendors_way_of_saying_too_long_is_understood(message: str) -> None:
    assert is_overflow(message)
    error = from_response(400, {}, said(message), URL)
    assert isinstance(error, ContextExceededError)
    assert not error.retryable


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
        "This request would exceed your organization's rate limit of 30,000 input tokens per minute",
        "messages.1.content: text content blocks must be non-empty",
        "an error 400 (no body)",
    ],
)
def test_other_size_errors_are_not_an_overflow(message: str) -> None:
    assert not is_overflow(message)


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (301, ModelError, False),
        (400, ModelError, False),
        (401, AuthFailedError, False),
        (402, ModelError, False),
        (403, AuthFailedError, False),
        (404, ModelError, False),
        (408, ModelError, True),
        (409, ModelError, True),
        (413, ContextExceededError, False),
        (422, ModelError, False),
        (429, RateLimitedError, True),
        (500, ModelError, True),
        (502, ModelError, True),
        (503, OverloadedError, True),
        (504, ModelError, True),
        (529, OverloadedError, True),
        (599, ModelError, True),
    ],
)
def test_the_status_decides_the_kind_and_whether_to_try_again(
    status: int, kind: type[ModelError], retryable: bool
) -> None:
    error = from_response(status, {}, said("something"), URL, "anthropic")
    assert type(error) is kind
    assert error.retryable is retryable
    assert (error.status, error.message, error.url) == (status, "something", URL)


def test_a_404_of_openai_is_retryable() -> None:
    assert from_response(404, {}, said("gone"), URL, "openai").retryable
    assert from_response(404, {}, said("gone"), URL, "openai-eu").retryable


@pytest.mark.parametrize("code", ["insufficient_quota", "usage_not_included"])
def test_an_empty_account_is_not_retryable(code: str) -> None:
    error = from_response(429, {}, said("You exceeded your current quota", code=code), URL, "openai")
    assert isinstance(error, RateLimitedError)
    assert not error.retryable


def test_the_should_retry_header_decides() -> None:
    assert from_response(400, {"X-Should-Retry": "true"}, said("odd"), URL).retryable
    assert not from_response(500, {"x-should-retry": "false"}, said("odd"), URL).retryable
    assert not from_response(401, {"x-should-retry": "true"}, said("odd"), URL).retryable


def test_an_overload_is_recognised_by_name() -> None:
    assert isinstance(from_response(500, {}, said("Overloaded", type="overloaded_error"), URL), OverloadedError)


@pytest.mark.parametrize(
    "body",
    [
        said("The response was filtered", code="content_filter"),
        said("No", code="content_policy_violation"),
        said("Output blocked by content filtering policy"),
        said("No", code="BadRequest", innererror={"code": "ResponsibleAIPolicyViolation"}),
    ],
)
def test_a_withheld_answer_is_content_filtered(body: str) -> None:
    error = from_response(400, {}, body, URL)
    assert isinstance(error, ContentFilteredError)
    assert not error.retryable


def test_a_rate_limit_in_tokens_is_not_mistaken_for_an_overflow() -> None:
    assert isinstance(from_response(429, {}, said("usage exceeds the limit of 30000 a minute"), URL), RateLimitedError)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, "", "Bad Request"),
        (529, "", "Overloaded"),
        (599, "", "HTTP 599"),
        (400, "plain words", "Bad Request: plain words"),
        (400, '{"message": "flat"}', "Bad Request: flat"),
        (400, '{"error": "a string"}', "Bad Request: a string"),
        (422, '{"detail": "from a framework"}', "Unprocessable Entity: from a framework"),
        (400, '{"error": {"message": "theirs", "code": "x"}}', "theirs"),
        (400, '[{"error": {"code": 400, "message": "in a list", "status": "INVALID_ARGUMENT"}}]', "in a list"),
        (400, '{"odd": 1}', 'Bad Request: {"odd": 1}'),
        (400, '{"error": {"type": "bare"}}', 'Bad Request: {"error": {"type": "bare"}}'),
    ],
)
def test_the_message_is_that_of_the_provider(status: int, body: str, message: str) -> None:
    assert from_response(status, {}, body, URL).message.replace("Content", "Entity") == message


def test_a_web_page_is_not_quoted() -> None:
    error = from_response(502, {}, "<!doctype html><html><body>Cloudflare</body></html>", URL)
    assert error.message.startswith("Bad Gateway: the server sent a web page")
    assert "Cloudflare" in (error.body or "")


def test_copilot_errors_say_to_log_in_again() -> None:
    error = from_response(403, {}, said("forbidden"), URL, "github-copilot-enterprise")
    assert "log in again" in error.message
    assert isinstance(error, AuthFailedError)


def test_a_wordless_400_is_an_overflow_only_where_that_is_the_custom() -> None:
    assert isinstance(from_response(400, {}, "", URL, "cerebras"), ContextExceededError)
    assert isinstance(from_response(400, {}, " ", URL, "mistral"), ContextExceededError)
    assert type(from_response(400, {}, "", URL, "openai")) is ModelError
    assert type(from_response(400, {}, "x", URL, "mistral")) is ModelError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retry-after-ms", "1500.5"),
        ("retry-after", "7"),
        ("retry-after", "0.25"),
        ("retry-after", "Sun, 15 Nov 2026 21:00:00 GMT"),
    ],
)
def test_every_form_of_retry_after_is_kept(name: str, value: str) -> None:
    error = from_response(429, {name.title(): value}, said("slow down"), URL)
    assert error.headers == {name: value}


def test_no_secret_is_kept() -> None:
    key = "-".join(("sk", "made", "up", "0123456789abcdef" * 2))
    error = from_response(
        401,
        {"Set-Cookie": "session=1", "Authorization": f"Bearer {key}", "X-Api-Key": key, "Request-Id": "req_1"},
        said(f"Incorrect API key provided: {key}. Header was: Bearer eyJhbGciOiJIUzI1NiJ9.payload.signature"),
        f"https://user:{key}@api.test/v1?api-version=2&key={key}&X-Amz-Signature=abc#part",
    )
    assert error.headers == {"request-id": "req_1"}
    assert error.url == "https://api.test/v1?api-version=2"
    assert "[redacted]" in error.message
    for text in (error.message, error.body, str(error.data)):
        assert key not in str(text)
        assert "eyJhbGci" not in str(text)


def test_text_that_only_resembles_a_key_stays() -> None:
    message = "risk-assessment of skeleton-key; basic authentication required; skip_thought_signature_validator"
    assert from_response(400, {}, said(message), URL).message == message


def test_a_huge_body_is_cut() -> None:
    error = from_response(500, {}, "x" * (BODY_LIMIT * 2), URL)
    assert len(error.body or "") == BODY_LIMIT
    assert len(error.message) < 3_000


@pytest.mark.parametrize(
    ("payload", "kind", "retryable", "message"),
    [
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            OverloadedError,
            True,
            "Overloaded",
        ),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "Slow"}}, RateLimitedError, True, "Slow"),
        ({"type": "error", "error": {"type": "api_error", "message": "Oops"}}, ModelError, True, "Oops"),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "No"}}, ModelError, False, "No"),
        ({"type": "error", "error": {"type": "authentication_error", "message": "Who"}}, AuthFailedError, False, "Who"),
        ({"type": "error", "code": "context_length_exceeded", "message": "Long"}, ContextExceededError, False, "Long"),
        ({"type": "error", "error": {"code": "insufficient_quota", "message": "Pay"}}, RateLimitedError, False, "Pay"),
        ({"type": "error", "error": {"code": "invalid_prompt", "message": "Bad"}}, ModelError, False, "Bad"),
        ({"error": {"code": 429, "message": "Busy", "status": "RESOURCE_EXHAUSTED"}}, RateLimitedError, True, "Busy"),
        ({"error": {"code": 502, "message": "Provider disconnected"}}, ModelError, True, "Provider disconnected"),
        (
            {"error": {"type": "invalid_request_error", "code": "invalid_api_key", "message": "K"}},
            AuthFailedError,
            False,
            "K",
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "Sorry"}}},
            ModelError,
            True,
            "Sorry",
        ),
        ({"type": "throttlingException", "message": "Too many"}, RateLimitedError, True, "Too many"),
        ({"type": "modelStreamErrorException", "message": "Hm"}, ModelError, True, "Hm"),
        ("not even JSON", ModelError, True, "not even JSON"),
        ({"strange": True}, ModelError, True, '{"strange":true}'),
        ("", ModelError, True, "The provider ended the stream with an error"),
    ],
)
def test_an_error_inside_a_stream_is_classified_by_its_names(
    payload: dict[str, Any] | str, kind: type[ModelError], retryable: bool, message: str
) -> None:
    error = from_stream_error(payload, "someone", URL)
    assert type(error) is kind
    assert error.retryable is retryable
    assert error.message == message
    assert error.url == URL


def test_an_error_inside_a_stream_keeps_the_status_it_names_and_no_other() -> None:
    assert from_stream_error({"error": {"code": 503, "message": "x"}}).status == 503
    assert from_stream_error({"error": {"type": "overloaded_error", "message": "x"}}).status is None


def test_a_string_with_an_error_object_is_read_like_the_object() -> None:
    assert isinstance(from_stream_error(said("x", type="overloaded_error")), OverloadedError)
