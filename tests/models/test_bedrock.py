from __future__ import annotations

import hashlib
import hmac
import sys
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from opensesh.errors import (
    AuthFailedError,
    ContextExceededError,
    ModelConnectionError,
    ModelError,
    OverloadedError,
    RateLimitedError,
)
from opensesh.models.bedrock import Bedrock
from opensesh.models.model import Model
from opensesh.models.stream_events import (
    FinishStep,
    StartStep,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
    Usage,
)

from . import wire_bedrock as wire
from .amazon import converse_stream
from .loopback import Exchange, breaking_after, serving
from .wires import Server, ask, assert_well_formed, collect, collect_into

if TYPE_CHECKING:
    from pathlib import Path

MODEL = Model(id="claude", api_id="us.anthropic.claude-sonnet-4-5-20250929-v1:0", provider_id="amazon-bedrock")
DATA = b"".join(wire.FULL)
USAGE = Usage(input=30, output=80, cache_read=2000, cache_write=100, total=2210)
EVENTS: list[StreamEvent] = [
    StartStep(),
    TextStart("0", kind="reasoning"),
    TextDelta("0", "Let me see: 東京 ", kind="reasoning"),
    TextDelta("0", "and Zürich 🗻.", kind="reasoning"),
    TextEnd("0", {"bedrock": {"signature": wire.SIGNATURE}}, kind="reasoning"),
    TextStart("1", kind="reasoning"),
    TextEnd("1", {"bedrock": {"redactedData": wire.REDACTED}}, kind="reasoning"),
    TextStart("2"),
    TextDelta("2", "Okay, let's check "),
    TextDelta("2", "the weather — ☀️"),
    TextEnd("2"),
    ToolInputStart("tooluse_Zt1", "get_weather"),
    ToolInputDelta("tooluse_Zt1", '{"location": "Zür'),
    ToolInputDelta("tooluse_Zt1", 'ich", "days": 3}'),
    ToolCall("tooluse_Zt1", "get_weather", {"location": "Zürich", "days": 3}, raw='{"location": "Zürich", "days": 3}'),
    ToolInputStart("tooluse_Zt2", "get_time"),
    ToolCall("tooluse_Zt2", "get_time", {}),
    FinishStep("tool-calls", USAGE),
]


@pytest.fixture(autouse=True)
def no_cloud(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(isolated / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(isolated / "aws-credentials"))


def bedrock(server: Server, **settings: Any) -> Bedrock:
    return Bedrock("bearer-of-the-test", transport=server.transport, **settings)


async def events_of(*frames: bytes) -> list[StreamEvent]:
    return await collect(bedrock(Server(b"".join(frames))), ask(MODEL))


async def failure_of(answer: bytes | httpx2.Response) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await collect(bedrock(Server(answer)), ask(MODEL))
    return raised.value


async def test_an_answer_with_everything_becomes_the_common_events() -> None:
    events = await events_of(*wire.FULL)
    assert events == EVENTS
    assert_well_formed(events)


async def test_an_answer_cut_at_any_byte_means_the_same() -> None:
    for at in range(0, len(DATA), 3):
        assert await collect(bedrock(Server([DATA[:at], DATA[at:]])), ask(MODEL)) == EVENTS, at


async def test_sealed_thought_in_two_pieces_is_joined() -> None:
    pieces = [wire.delta(0, reasoningContent={"redactedContent": piece}) for piece in ("YQ==", "YmM=")]
    events = await events_of(wire.START, *pieces, wire.stop(0), *wire.end())
    assert TextEnd("0", {"bedrock": {"redactedData": "YWJj"}}, kind="reasoning") in events


@pytest.mark.parametrize(
    ("stop_reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool-calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content-filter"),
        ("content_filtered", "content-filter"),
        ("malformed_tool_use", "error"),
        ("something_new", "unknown"),
    ],
)
async def test_the_reason_to_stop_is_translated(stop_reason: str, expected: str) -> None:
    events = await events_of(wire.START, wire.delta(0, text="Hi"), wire.stop(0), *wire.end(stop_reason))
    assert isinstance(events[-1], FinishStep)
    assert events[-1].reason == expected


async def test_broken_arguments_are_a_problem_of_the_call() -> None:
    frames = (wire.tool_start(0, "a", "read"), wire.delta(0, toolUse={"input": '{"path":'}), wire.stop(0))
    (call,) = [event for event in await events_of(wire.START, *frames, *wire.end()) if isinstance(event, ToolCall)]
    assert (call.input, call.raw) == ({}, '{"path":')
    assert call.problem


async def test_an_answer_without_its_counts_still_ends() -> None:
    stopped = wire.event("messageStop", stopReason="end_turn")
    events = await events_of(wire.START, wire.delta(0, text="Hi"), stopped)
    assert [type(event) for event in events] == [StartStep, TextStart, TextDelta, TextEnd, FinishStep]
    assert events[-1] == FinishStep("stop", Usage())
    async with breaking_after(b"".join((wire.START, wire.delta(0, text="Hi"), stopped))) as amazon:
        adapter = Bedrock("bearer-of-the-test", base_url=amazon.url)
        assert await collect(adapter, ask(MODEL)) == events
        await adapter.aclose()


async def test_unknown_events_and_deltas_are_ignored() -> None:
    unknown = (wire.event("brandNew", x=1), wire.delta(0, citation={"title": "x"}), wire.stop(9))
    events = await events_of(wire.START, *unknown, wire.delta(1, text="Hi"), wire.stop(1), *wire.end())
    assert [type(event) for event in events] == [StartStep, TextStart, TextDelta, TextEnd, FinishStep]


@pytest.mark.parametrize("frames", [[], wire.FULL[:5], [b"<html>"], [wire.START, b"junk that is no frame"]])
async def test_an_answer_that_breaks_off_is_a_broken_connection(frames: list[bytes]) -> None:
    assert isinstance(await failure_of(b"".join(frames)), ModelConnectionError)


@pytest.mark.parametrize(
    "frame",
    [
        wire.event("contentBlockDelta", delta={"text": "x"}),
        wire.event("contentBlockStart", contentBlockIndex=0, start={"toolUse": {}}),
        wire.event("messageStop"),
        wire.frame({":message-type": "event", ":event-type": "messageStop"}, b"not json"),
    ],
)
async def test_an_event_that_makes_no_sense_is_a_broken_connection(frame: bytes) -> None:
    assert isinstance(await failure_of(wire.START + frame), ModelConnectionError)


@pytest.mark.parametrize(
    ("frame", "kind", "retryable", "message"),
    [
        (wire.exception("throttlingException", message="Too many tokens"), RateLimitedError, True, "Too many tokens"),
        (wire.exception("serviceUnavailableException", message="Later"), OverloadedError, True, "Later"),
        (wire.exception("internalServerException", message="Oops"), ModelError, True, "Oops"),
        (wire.exception("validationException", message="Bad field"), ModelError, False, "Bad field"),
        (
            wire.exception("validationException", message="Input is too long for requested model."),
            ContextExceededError,
            False,
            "Input is too long for requested model.",
        ),
        (
            wire.exception(
                "modelStreamErrorException", message="x", originalStatusCode=529, originalMessage="Overloaded"
            ),
            OverloadedError,
            True,
            "Overloaded",
        ),
        (wire.exception("modelStreamErrorException", message="Hm"), ModelError, True, "Hm"),
        (
            wire.frame({":message-type": "error", ":error-code": "InternalError", ":error-message": "Broke"}, b""),
            ModelError,
            True,
            "Broke",
        ),
    ],
)
async def test_an_exception_inside_the_stream_is_raised_after_what_came_before(
    frame: bytes, kind: type[ModelError], retryable: bool, message: str
) -> None:
    seen: list[StreamEvent] = []
    with pytest.raises(kind) as raised:
        await collect_into(seen, bedrock(Server(b"".join(wire.FULL[:3]) + frame)), ask(MODEL))
    assert seen == EVENTS[:4]
    assert type(raised.value) is kind
    assert (raised.value.retryable, raised.value.message) == (retryable, message)


@pytest.mark.parametrize(
    ("status", "name", "message", "kind", "retryable"),
    [
        (429, "ThrottlingException", "Too many requests", RateLimitedError, True),
        (400, "ValidationException", "Input is too long for requested model.", ContextExceededError, False),
        (403, "ExpiredTokenException", "The security token is expired", AuthFailedError, False),
        (424, "ModelErrorException", "The model failed", ModelError, True),
        (404, "ResourceNotFoundException", "No such model", ModelError, False),
    ],
)
async def test_errors_are_classified_by_status_and_name(
    status: int, name: str, message: str, kind: type[ModelError], retryable: bool
) -> None:
    headers = {"x-amzn-errortype": f"{name}:http://internal.amazon.com/", "x-amzn-requestid": "r1"}
    error = await failure_of(httpx2.Response(status, json={"message": message}, headers=headers))
    assert type(error) is kind
    assert error.retryable is retryable
    assert error.message.endswith(message)
    assert error.headers["x-amzn-requestid"] == "r1"


async def test_a_bearer_key_is_sent_as_it_is_to_the_region_and_model(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(DATA, DATA, DATA)
    await collect(bedrock(server, region="eu-central-1", headers={"X-Mine": "1"}), ask(MODEL, headers={"x-mine": "2"}))
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "from-the-environment")
    monkeypatch.setenv("AWS_REGION", "cn-north-1")
    arn = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc"
    await collect(Bedrock(transport=server.transport), ask(Model(id=arn, provider_id="amazon-bedrock")))
    await collect(bedrock(server, base_url="https://proxy.test/bedrock/"), ask(MODEL))
    first, second, third = server.requests
    model = "us.anthropic.claude-sonnet-4-5-20250929-v1%3A0"
    assert str(first.url) == f"https://bedrock-runtime.eu-central-1.amazonaws.com/model/{model}/converse-stream"
    assert first.headers["authorization"] == "Bearer bearer-of-the-test"
    assert first.headers["x-mine"] == "2"
    assert second.url.host == "bedrock-runtime.cn-north-1.amazonaws.com.cn"
    assert b"profile%2Fabc/converse-stream" in second.url.raw_path
    assert second.headers["authorization"] == "Bearer from-the-environment"
    assert str(third.url) == f"https://proxy.test/bedrock/model/{model}/converse-stream"


def signature(request: httpx2.Request, secret: str, region: str) -> str:
    """Signature Version 4 as Amazon describes it, worked out by hand."""
    fields = dict(part.split("=", 1) for part in request.headers["authorization"].split(" ", 1)[1].split(", "))
    names = fields["SignedHeaders"].split(";")
    path = request.url.raw_path.decode().replace("%", "%25")
    signed = "".join(f"{name}:{request.headers[name]}\n" for name in names)
    digest = hashlib.sha256(request.content).hexdigest()
    canonical = f"POST\n{path}\n\n{signed}\n{fields['SignedHeaders']}\n{digest}"
    stamp = request.headers["x-amz-date"]
    scope = f"{stamp[:8]}/{region}/bedrock/aws4_request"
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    return hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()


async def test_without_a_key_the_request_is_signed_with_aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-test")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-session-token")
    server = Server(DATA)
    assert await collect(Bedrock(region="us-west-2", transport=server.transport), ask(MODEL)) == EVENTS
    (request,) = server.requests
    assert request.headers["authorization"].endswith(signature(request, "a-secret-of-the-test", "us-west-2"))
    assert request.headers["x-amz-security-token"] == "a-session-token"
    assert "host" in request.headers["authorization"]


@pytest.mark.parametrize("region", ["models.example/", "us-east-1@models.example", "us-east-1#", "eu west"])
def test_a_region_cannot_make_another_address(region: str) -> None:
    with pytest.raises(ModelError, match="is not an AWS region"):
        Bedrock("key", region=region)


@pytest.mark.parametrize(
    ("region", "name", "asked_for"),
    [
        ("us-east-1", "anthropic.claude-haiku-4-5-20251001-v1:0", "us.anthropic.claude-haiku-4-5-20251001-v1%3A0"),
        ("us-west-2", "us.anthropic.claude-opus-4-v1", "us.anthropic.claude-opus-4-v1"),
        ("us-west-2", "global.anthropic.claude-opus-4-v1", "global.anthropic.claude-opus-4-v1"),
        ("us-east-1", "openai.gpt-oss-120b-1:0", "openai.gpt-oss-120b-1%3A0"),
        ("us-gov-west-1", "anthropic.claude-opus-4-v1", "anthropic.claude-opus-4-v1"),
        ("eu-central-1", "amazon.nova-lite-v1", "eu.amazon.nova-lite-v1"),
        ("eu-central-2", "amazon.nova-lite-v1", "amazon.nova-lite-v1"),
        ("eu-west-1", "amazon.nova-pro-v1", "amazon.nova-pro-v1"),
        ("ap-southeast-2", "anthropic.claude-haiku-4-5-v1", "au.anthropic.claude-haiku-4-5-v1"),
        ("ap-southeast-2", "anthropic.claude-opus-4-v1", "apac.anthropic.claude-opus-4-v1"),
        ("ap-northeast-1", "anthropic.claude-opus-4-v1", "jp.anthropic.claude-opus-4-v1"),
        ("ap-south-1", "amazon.nova-pro-v1", "apac.amazon.nova-pro-v1"),
        ("sa-east-1", "anthropic.claude-opus-4-v1", "anthropic.claude-opus-4-v1"),
        (
            "us-east-1",
            "arn:aws:bedrock:us-east-1:1:profile/claude",
            "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aprofile%2Fclaude",
        ),
    ],
)
async def test_the_request_uses_the_regional_name_of_a_model(region: str, name: str, asked_for: str) -> None:
    server = Server(DATA)
    await collect(bedrock(server, region=region), ask(Model(id=name, provider_id="amazon-bedrock")))
    assert server.requests[0].url.raw_path.decode() == f"/model/{asked_for}/converse-stream"


async def test_a_profile_brings_its_own_credentials(isolated: Path) -> None:
    pytest.importorskip("botocore")
    (isolated / "aws-credentials").write_text(
        "[work]\naws_access_key_id = AKIDWORK\naws_secret_access_key = a-secret-of-the-profile\n"
    )
    server = Server(DATA)
    await collect(Bedrock(profile="work", transport=server.transport), ask(MODEL))
    assert "Credential=AKIDWORK/" in server.requests[0].headers["authorization"]
    assert server.requests[0].url.host == "bedrock-runtime.us-east-1.amazonaws.com"


@pytest.mark.parametrize(("profile", "message"), [(None, "AWS_BEARER_TOKEN_BEDROCK"), ("absent", "absent")])
async def test_a_missing_credentials_error_explains_what_to_do(profile: str | None, message: str) -> None:
    pytest.importorskip("botocore")
    server = Server(DATA)
    with pytest.raises(AuthFailedError, match=message):
        await collect(Bedrock(profile=profile, transport=server.transport), ask(MODEL))
    assert server.requests == []


async def test_a_role_that_cannot_be_assumed_is_an_auth_error(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore")

    async def deny(exchange: Exchange) -> None:
        text = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>"
        await exchange.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))

    (isolated / "aws-credentials").write_text(
        "[me]\naws_access_key_id = AKIDME\naws_secret_access_key = hush\n"
        "[work]\nrole_arn = arn:aws:iam::123456789012:role/work\nsource_profile = me\nregion = us-east-1\n"
    )
    async with serving(deny) as amazon:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", amazon.url)
        with pytest.raises(AuthFailedError, match="not you"):
            await collect(Bedrock(profile="work", transport=Server(DATA).transport), ask(MODEL))


async def test_without_botocore_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(AuthFailedError, match=r"needs botocore: pip install botocore \("):
        await collect(Bedrock(transport=Server(DATA).transport), ask(MODEL))


def test_amazons_own_client_reads_the_fake_the_same_way() -> None:
    asked = {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    url, _, response = converse_stream(DATA, MODEL.wire_id, asked)
    assert url.endswith("/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream")
    text, thought, calls, usage = "", "", dict[str, str](), dict[str, int]()
    for event in response["stream"]:
        delta = event.get("contentBlockDelta", {}).get("delta", {})
        text += delta.get("text", "")
        thought += delta.get("reasoningContent", {}).get("text", "")
        if "contentBlockStart" in event:
            calls[event["contentBlockStart"]["start"]["toolUse"]["toolUseId"]] = ""
        if "toolUse" in delta:
            calls["tooluse_Zt1"] += delta["toolUse"]["input"]
        usage = event.get("metadata", {}).get("usage", usage)
    assert text == "".join(event.text for event in EVENTS if isinstance(event, TextDelta) and event.kind == "text")
    assert thought == "".join(
        event.text for event in EVENTS if isinstance(event, TextDelta) and event.kind == "reasoning"
    )
    assert calls == {event.id: event.raw for event in EVENTS if isinstance(event, ToolCall)}
    assert (usage["inputTokens"], usage["outputTokens"], usage["totalTokens"]) == (
        USAGE.input,
        USAGE.output,
        USAGE.total,
    )
    assert (usage["cacheReadInputTokens"], usage["cacheWriteInputTokens"]) == (USAGE.cache_read, USAGE.cache_write)
