from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import ssl
import subprocess
import sys
import traceback
from contextlib import aclosing
from typing import TYPE_CHECKING

import httpx2
import pytest

from opensesh.errors import AuthFailedError, ModelConnectionError, ModelError, OverloadedError, RateLimitedError
from opensesh.models.answers import drain
from opensesh.models.catalogue_sources import refresh_copy
from opensesh.models.failures import BODY_LIMIT
from opensesh.models.sse import ServerSentEvent
from opensesh.models.transport import Transport
from opensesh.models.wire_helpers import encode_json

from .loopback import END, HEAD, Exchange, chunk, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

URL = "https://api.test/v1/messages"
ONE = ServerSentEvent("message", "one")


def answering(handler: Callable[[httpx2.Request], httpx2.Response]) -> Transport:
    return Transport(client=httpx2.AsyncClient(transport=httpx2.MockTransport(handler)))


def answering_with(data: bytes) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: httpx2.Response(200, content=data)))


async def ask(
    transport: Transport, url: str = URL, headers: Mapping[str, str] | None = None, provider_id: str = ""
) -> list[ServerSentEvent]:
    events = transport.sse(url, headers=headers or {}, body={"ask": "é"}, provider_id=provider_id)
    return [event async for event in events]


async def refused(transport: Transport, url: str = URL, headers: Mapping[str, str] | None = None) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await ask(transport, url, headers)
    await transport.aclose()
    return raised.value


async def test_a_body_is_posted_as_json_and_its_answer_comes_as_events() -> None:
    seen: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, content=b"data: one\n\nevent: e\ndata: two\n\n")

    events = await ask(answering(handler), headers={"X-Api-Key": "k", "Accept": "text/plain"})
    assert events == [ONE, ServerSentEvent("e", "two")]
    (request,) = seen
    assert (request.method, str(request.url), json.loads(request.content)) == ("POST", URL, {"ask": "é"})
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept"] == "text/plain"
    assert request.headers["x-api-key"] == "k"


def test_half_characters_in_a_body_do_not_stop_it() -> None:
    assert json.loads(encode_json({"a": "x\ud83d", "b": "\ud83d\ude80"})) == {"a": "x\ufffd", "b": "🚀"}


async def test_a_compressed_answer_is_unpacked() -> None:
    packed = gzip.compress(b"data: one\n\n")
    transport = answering(lambda _: httpx2.Response(200, content=packed, headers={"content-encoding": "gzip"}))
    assert await ask(transport) == [ONE]


async def test_raw_bytes_go_and_come_unchanged() -> None:
    transport = answering(lambda request: httpx2.Response(200, content=request.content[::-1]))
    chunks = transport.raw(URL, headers={}, content=b"\x00\x01")
    assert b"".join([piece async for piece in chunks]) == b"\x01\x00"


async def test_an_error_has_its_reason_and_the_retry_headers() -> None:
    body = {"error": {"type": "rate_limit_error", "message": "slow down"}}
    headers = {"Retry-After": "7", "Set-Cookie": "a=b"}
    error = await refused(answering(lambda _: httpx2.Response(429, json=body, headers=headers)))
    assert isinstance(error, RateLimitedError)
    assert (error.message, error.status, error.headers["retry-after"]) == ("slow down", 429, "7")
    assert "set-cookie" not in error.headers
    assert error.body == '{"error":{"type":"rate_limit_error","message":"slow down"}}'


async def test_a_key_that_the_server_repeats_is_not_kept() -> None:
    key, query = "completely-unremarkable", "another/secret"

    def handler(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(401, json={"error": {"message": f"{request.headers['x-api-key']} {query} is wrong"}})

    error = await refused(answering(handler), f"{URL}?alt=sse&key=another%2Fsecret", {"x-api-key": key})
    assert isinstance(error, AuthFailedError)
    assert error.message == "[redacted] [redacted] is wrong"
    assert (error.url, error.body) == (f"{URL}?alt=sse", '{"error":{"message":"[redacted] [redacted] is wrong"}}')


async def test_an_error_response_with_an_incomplete_body_keeps_its_status() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 99\r\n\r\nwe are")
        raise ConnectionError

    async with serving(answer) as server:
        error = await refused(Transport(), server.url)
        assert isinstance(error, OverloadedError)
        assert error.message == "Service Unavailable: we are"


async def test_only_the_beginning_of_an_endless_error_body_is_read() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD.replace(b"200 OK", b"500 Oh"))
        while True:
            await exchange.send(chunk(b"x" * 10_000))

    async with serving(answer) as server:
        assert len((await refused(Transport(), server.url)).body or "") == BODY_LIMIT


async def test_a_server_that_does_not_pick_up_is_a_broken_connection() -> None:
    def handler(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectTimeout("")

    error = await refused(answering(handler))
    assert isinstance(error, ModelConnectionError)
    assert error.message == f"{URL} could not be reached within 30.0 s"


async def test_a_redirect_is_not_followed_since_keys_would_go_along() -> None:
    error = await refused(answering(lambda _: httpx2.Response(307, headers={"location": "https://evil.test"})))
    assert (error.status, error.retryable) == (307, False)


async def test_an_error_object_instead_of_a_stream_is_that_error() -> None:
    body = {"error": {"type": "overloaded_error", "message": "Overloaded"}}
    error = await refused(answering(lambda _: httpx2.Response(200, json=body)))
    assert isinstance(error, OverloadedError)


async def test_a_web_page_instead_of_a_stream_points_to_the_address() -> None:
    error = await refused(answering(lambda _: httpx2.Response(200, html="<html>Sign in to the Wi-Fi</html>")))
    assert "web page" in error.message
    assert not error.retryable


async def test_no_answer_at_all_is_a_broken_connection() -> None:
    error = await refused(answering(lambda _: httpx2.Response(200)))
    assert isinstance(error, ModelConnectionError)


@pytest.mark.parametrize("url", ["no address", "http://[::1", "ftp://api.test/x", "https://api.test:x/"])
async def test_an_invalid_url_is_not_retryable(url: str) -> None:
    assert not (await refused(Transport(), url)).retryable


async def test_a_key_with_stray_characters_is_explained_and_not_shown() -> None:
    error = await refused(Transport(), headers={"x-api-key": "“secret-secret”"})
    assert "key" in error.message
    assert "secret-secret" not in "".join(traceback.format_exception(error))


async def test_a_key_with_a_line_break_is_not_shown_either() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD, END)

    async with serving(answer) as server:
        error = await refused(Transport(), server.url, {"x-api-key": "secret-secret\nx: y"})
        assert "secret-secret" not in "".join(traceback.format_exception(error))
        assert not error.retryable


async def test_a_closed_port_is_a_connection_error() -> None:
    error = await refused(Transport(), "http://127.0.0.1:1/v1?token=secret")
    assert isinstance(error, ModelConnectionError)
    assert error.message.startswith("http://127.0.0.1:1/v1 could not be reached")


async def test_a_connection_reset_in_the_middle_breaks_after_what_came_before() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD, chunk(b"data: one\n\n"))
        await asyncio.sleep(0.02)
        exchange.reset()

    async with serving(answer) as server:
        transport = Transport()
        events = transport.sse(server.url, headers={}, body={})
        assert await anext(events) == ONE
        with pytest.raises(ModelConnectionError, match="broke"):
            await anext(events)
        await transport.aclose()


async def test_a_connection_closed_before_its_last_chunk_is_broken() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD, chunk(b"data: one\n\n"))
        raise ConnectionError

    async with serving(answer) as server:
        assert isinstance(await refused(Transport(), server.url), ModelConnectionError)


async def test_silence_in_the_middle_ends_at_the_idle_timeout() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD, chunk(b"data: one\n\n"))
        await exchange.hung_up()

    async with serving(answer) as server:
        error = await refused(Transport(idle_timeout=0.05), server.url)
        assert isinstance(error, ModelConnectionError)
        assert error.message == f"{server.url} was silent for 0.05 s"


async def test_a_slow_drip_within_the_idle_timeout_goes_through() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD)
        for byte in b"data: one\n\n":
            await exchange.send(chunk(bytes([byte])))
            await asyncio.sleep(0.01)
        await exchange.send(END)

    async with serving(answer) as server:
        transport = Transport(idle_timeout=5)
        assert await ask(transport, server.url) == [ONE]
        await transport.aclose()


async def test_a_drip_that_never_ends_is_cut_at_the_timeout_of_the_whole() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD)
        while True:
            await exchange.send(chunk(b"data: one\n\n"))
            await asyncio.sleep(0.05)

    async with serving(answer) as server:
        transport = Transport(timeout=1)
        with pytest.raises(ModelConnectionError, match=f"{server.url} took longer than 1 s"):
            await ask(transport, server.url)
        await transport.aclose()


async def test_an_answer_in_time_is_read_to_its_end() -> None:
    transport = Transport(client=answering_with(b"data: one\n\n"), timeout=60)
    assert await ask(transport) == [ONE]


async def test_closing_the_generator_hangs_up_at_once() -> None:
    gone = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD, chunk(b"data: one\n\n"))
        await exchange.hung_up()
        gone.set()

    async with serving(answer) as server:
        transport = Transport()
        async with aclosing(transport.sse(server.url, headers={}, body={})) as events:
            await anext(events)
            assert not gone.is_set()
        await asyncio.wait_for(gone.wait(), 60)
        await transport.aclose()


async def test_cancelling_the_reader_hangs_up_at_once() -> None:
    gone, begun = asyncio.Event(), asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD, chunk(b"data: one\n\n"))
        begun.set()
        await exchange.hung_up()
        gone.set()

    async with serving(answer) as server, asyncio.TaskGroup() as group:
        transport = Transport()
        reading = group.create_task(ask(transport, server.url))
        await begun.wait()
        await asyncio.sleep(0.02)
        reading.cancel()
        await asyncio.wait_for(gone.wait(), 60)
        await transport.aclose()
    assert reading.cancelled()


async def test_a_stream_read_to_its_end_leaves_the_connection_to_the_next() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD, chunk(b"data: one\n\n"))
        await asyncio.sleep(0.01)
        await exchange.send(END)

    async with serving(answer) as server:
        transport = Transport()
        for _ in range(3):
            async with aclosing(transport.sse(server.url, headers={}, body={})) as events:
                await anext(events)
                await drain(events)
        assert (server.connections, len(server.exchanges)) == (1, 3)
        await transport.aclose()


async def test_proxies_of_the_environment_are_used_save_for_hosts_exempt(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD, chunk(b"data: one\n\n"), END)

    async with serving(answer) as proxy, serving(answer) as direct:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        transport = Transport()
        assert await ask(transport, "http://api.test/v1") == [ONE]
        assert await ask(transport, direct.url) == [ONE]
        await transport.aclose()
    assert [exchange.head.split("\r\n")[0] for exchange in proxy.exchanges] == ["POST http://api.test/v1 HTTP/1.1"]
    assert len(direct.exchanges) == 1


@pytest.mark.parametrize(
    ("proxy", "text"), [("socks5://127.0.0.1:1", "pip install socksio"), ("ftp://me:hush-hush@127.0.0.1", "ftp://")]
)
async def test_an_unusable_proxy_is_a_model_error(proxy: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", proxy)
    error = await refused(Transport())
    assert "proxy" in error.message
    assert text in error.message
    assert "hush-hush" not in error.message
    assert not error.retryable


async def test_a_success_that_is_an_error_does_not_repeat_the_key() -> None:
    key = "0123456789abcdef0123456789abcdef"
    text = json.dumps({"error": {"message": f"{key} is not known"}}).encode()
    for data in (text, f"<p>{key}</p>".encode(), f"{key}?".encode()):
        error = await refused(Transport(client=answering_with(data)), headers={"x-api-key": key})
        assert key not in f"{error} {error.body} {error.data}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("certificate")
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 2"
    names = ["-subj", "/CN=loopback", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *command.split(), *names], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"])
async def test_a_private_authority_is_trusted_when_the_environment_names_it(
    variable: str, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(HEAD, chunk(b"data: one\n\n"), END)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    async with serving(answer, tls=context) as server:
        error = await refused(Transport(), server.url)
        assert isinstance(error, ModelConnectionError)
        assert "certificate" in error.message.lower()
        monkeypatch.setenv(variable, str(authority / "cert.pem"))
        transport = Transport()
        assert await ask(transport, server.url) == [ONE]
        await transport.aclose()
        with pytest.raises(ModelError, match="did not send a catalogue"):  # but was believed to be who it is
            await asyncio.to_thread(refresh_copy, {"OPENCODE_MODELS_URL": server.url})


async def test_certificates_that_are_not_there_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", "/nowhere/extra.pem")
    assert isinstance(await refused(Transport(), "http://127.0.0.1:1"), ModelConnectionError)
    assert "/nowhere/extra.pem" in caplog.text
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/all.pem")
    error = await refused(Transport(), "http://127.0.0.1:1")
    assert "/nowhere/all.pem" in error.message
    assert not error.retryable


def test_no_http_library_is_loaded_before_a_provider_is_connected() -> None:
    code = (
        "import sys, opensesh.models.connect, opensesh.models.catalogue, opensesh.testing.scripted;"
        "print([name for name in ('httpx2', 'botocore', 'urllib.request') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
