from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from opensesh import events
from opensesh.config import load
from opensesh.errors import NotFoundError, StoreError, ToolFailedError
from opensesh.redaction import known_secrets
from opensesh.tools.mcp import oauth
from opensesh.tools.mcp.oauth import Challenge, OAuthError, check_address, discover
from opensesh.tools.mcp.servers import McpServers

from .authorization import Answer, Authorization, browse, guarded
from .test_remote import free_port
from .test_servers import McpSetup, mcp_setup


def logins_file() -> Path:
    return Path.home() / ".local/share/opencode/mcp-auth.json"


def saved() -> dict[str, Any]:
    return json.loads(logins_file().read_text())


def save(**entries: Any) -> None:
    logins_file().parent.mkdir(parents=True, exist_ok=True)
    logins_file().write_text(json.dumps(entries))


def save_tokens(server: Authorization, **more: Any) -> None:
    tokens = {"accessToken": "stale", "refreshToken": "refresh-0", "expiresAt": time.time() - 60, **more}
    server.refresh_tokens.add("refresh-0")
    save(web={"tokens": tokens, "clientInfo": {"clientId": "client-0"}, "serverUrl": server.mcp_url})


def remote(server: Authorization, **settings: Any) -> dict[str, Any]:
    return {"type": "remote", "url": server.mcp_url, "oauth": {"callbackPort": free_port(), **settings}}


class Browser:
    """Opens the address of a login as a user who agrees, in a thread."""

    def __init__(self, change: Callable[[str], str] = lambda url: url) -> None:
        self.change = change
        self.pages: list[tuple[int, str]] = []

    def __call__(self, url: str) -> None:
        self.thread = threading.Thread(target=lambda: self.pages.append(browse(self.change(url))))
        self.thread.start()

    async def page(self) -> tuple[int, str]:
        await asyncio.to_thread(self.thread.join)
        return self.pages[0]


async def state_of(it: McpSetup) -> str:
    await it.tools()
    return it.servers.states["web"].status


async def test_a_server_that_requires_a_login_is_logged_in_to_with_a_browser() -> None:
    browser = Browser()
    async with guarded() as server, mcp_setup(web=remote(server)) as it:
        assert await state_of(it) == "needs_auth"
        assert not server.registrations, "nothing is registered before the user logs in"
        assert (await it.servers.logins.run("web", browser)).status == "connected"
        assert await it.call("web_whoami") == "access-1"
        (registration,) = server.registrations
        assert registration["redirect_uris"] == [server.token_requests[0]["redirect_uri"]]
        assert server.token_requests[0]["resource"] == server.mcp_url
        assert [type(event) for event in it.published if isinstance(event, events.McpBrowserOpenFailed)]
    assert (await browser.page())[0] == 200
    entry = saved()["web"]
    assert entry["tokens"].pop("expiresAt") == pytest.approx(time.time() + 3600, abs=100)
    assert entry == {
        "tokens": {"accessToken": "access-1", "refreshToken": "refresh-1", "scope": "read"},
        "clientInfo": {"clientId": "client-1", "clientIdIssuedAt": 1_700_000_000},
        "serverUrl": server.mcp_url,
    }
    assert stat.S_IMODE(logins_file().stat().st_mode) == 0o600


async def test_a_login_is_finished_with_the_code_alone() -> None:
    async with guarded() as server, mcp_setup(web=remote(server), other=remote(server)) as it:
        grant = await it.servers.logins.begin("web")
        assert grant is not None
        server.challenges["code-1"] = dict(parse_qsl(urlsplit(grant.url).query))
        with pytest.raises(ToolFailedError, match="No pending OAuth flow for MCP server: other"):
            await it.servers.logins.finish("other", "code-1")
        assert (await it.servers.logins.finish("web", "code-1")).status == "connected"
        with pytest.raises(ToolFailedError, match="No pending"):
            await it.servers.logins.finish("web", "code-1")


async def test_a_wrong_code_is_refused() -> None:
    async with guarded() as server, mcp_setup(web=remote(server)) as it:
        await it.servers.logins.begin("web")
        state = await it.servers.logins.finish("web", "another-code")
        assert (state.status, state.error) == ("failed", "the code is not valid")
        assert not logins_file().exists()


async def test_the_client_of_the_configuration_is_used_and_not_stored() -> None:
    async with guarded() as server:
        server.metadata = {"registration_endpoint": None, "scopes_supported": ["offline_access"]}
        section = remote(server, clientId="mine", clientSecret="hush-hush", scope="a b")
        async with mcp_setup(web=section) as it:
            assert await state_of(it) == "needs_auth"
            urls: list[str] = []
            browser = Browser(lambda url: urls.append(url) or url)
            assert (await it.servers.logins.run("web", browser)).status == "connected"
        query = dict(parse_qsl(urlsplit(urls[0]).query))
        assert (query["client_id"], query["scope"]) == ("mine", "a b")
        assert server.token_requests[0]["client_secret"] == "hush-hush"
        assert set(saved()["web"]) == {"tokens", "serverUrl"}


async def test_a_server_without_registration_needs_a_client_id() -> None:
    async with guarded() as server:
        server.metadata = {"registration_endpoint": None}
        async with mcp_setup(web=remote(server)) as it:
            assert await state_of(it) == "needs_client_registration"
            assert it.servers.states["web"].error == oauth.NO_REGISTRATION
            with pytest.raises(OAuthError, match="clientId"):
                await it.servers.logins.begin("web")


async def test_an_expired_token_is_renewed_once_for_all_requests() -> None:
    async with guarded() as server:
        save_tokens(server)
        async with mcp_setup(web=remote(server)) as it:
            assert await it.call("web_whoami") == "access-1"
            assert len(server.token_requests) == 1
            assert server.token_requests[0] == {
                "grant_type": "refresh_token",
                "refresh_token": "refresh-0",
                "client_id": "client-0",
                "resource": server.mcp_url,
            }
            server.access_tokens.clear()  # revoked while connected
            assert await it.call("web_whoami") == "access-2"
        assert saved()["web"]["tokens"]["refreshToken"] == "refresh-2"
        assert saved()["web"]["clientInfo"] == {"clientId": "client-0"}


async def test_a_token_that_another_process_renewed_is_used() -> None:
    async with guarded() as server:
        save_tokens(server)
        async with mcp_setup(web=remote(server)) as it:
            assert await it.call("web_whoami") == "access-1"
            server.access_tokens = {"theirs"}
            entry = saved()["web"]
            entry["tokens"] |= {"accessToken": "theirs", "refreshToken": "theirs-too"}
            save(web=entry)
            assert await it.call("web_whoami") == "theirs"
            assert len(server.token_requests) == 1


async def test_a_login_that_cannot_be_renewed_is_required_again_and_the_client_kept() -> None:
    async with guarded() as server:
        save_tokens(server, refreshToken="revoked")
        async with mcp_setup(web=remote(server)) as it:
            assert await state_of(it) == "needs_auth"
            assert str(it.servers.states["web"].error).startswith("the login has expired: log in with 'opensesh mcp")
        assert saved()["web"] == {"clientInfo": {"clientId": "client-0"}, "serverUrl": server.mcp_url}


async def test_a_login_that_another_process_made_is_used_with_the_next_prompt() -> None:
    async with guarded() as server, mcp_setup(web=remote(server)) as it:
        assert await state_of(it) == "needs_auth"
        requests = len(server.requests)
        assert await state_of(it) == "needs_auth"
        assert len(server.requests) == requests, "it is not asked again in vain"
        save_tokens(server)
        assert await state_of(it) == "connected"


async def test_a_login_that_ends_while_the_server_is_connected_is_reported() -> None:
    async with guarded() as server:
        server.access_tokens.add("stale")
        save_tokens(server, refreshToken=None, expiresAt=None)
        entry = saved()["web"]
        del entry["tokens"]["refreshToken"], entry["tokens"]["expiresAt"]
        save(web=entry)
        async with mcp_setup(web=remote(server)) as it:
            assert await it.call("web_whoami") == "stale"
            tool = (await it.tools())["web_whoami"]
            server.access_tokens.clear()
            with pytest.raises(ToolFailedError, match="opensesh mcp auth web"):
                await it.bench.run(tool)
            assert it.servers.states["web"].status == "needs_auth"


async def test_an_answer_that_is_refused_twice_is_not_sent_a_third_time() -> None:
    def refuse(headers: dict[str, str]) -> Answer:
        return 401, None

    async with guarded() as server:
        server.answers = {"/mcp": refuse}
        save_tokens(server)
        async with mcp_setup(web=remote(server)) as it:
            assert await state_of(it) == "needs_auth"
        assert len(server.token_requests) == 1


async def test_logging_out_forgets_the_login_and_disconnects() -> None:
    async with guarded() as server, mcp_setup(web=remote(server)) as it:
        await it.servers.logins.run("web", Browser())
        assert await it.servers.logins.remove("web")
        assert "web" not in saved()
        assert await state_of(it) == "needs_auth"
        assert not await it.servers.logins.remove("web")
        with pytest.raises(NotFoundError):
            await it.servers.logins.remove("missing")


async def test_other_logins_in_the_file_stay_as_they_are() -> None:
    other = {"tokens": {"accessToken": "x"}, "serverUrl": "https://other.example", "unknown": 1}
    save(other=other)
    async with guarded() as server, mcp_setup(web=remote(server)) as it:
        await it.servers.logins.run("web", Browser())
        assert saved()["other"] == other
        assert list(saved()) == ["other", "web"]


async def test_a_file_that_is_not_json_is_not_overwritten() -> None:
    save()
    logins_file().write_text('{"other": {"tok')
    async with guarded() as server, mcp_setup(web=remote(server)) as it:
        with pytest.raises(Exception, match="mcp-auth"):
            await it.servers.logins.run("web", Browser())
    assert logins_file().read_text() == '{"other": {"tok'


def test_a_login_file_that_cannot_be_read_is_not_overwritten(tmp_path: Path) -> None:
    from opensesh.storage.login_files import change_entry

    (tmp_path / "auth.json").mkdir()
    with pytest.raises(StoreError, match="cannot be read"):
        change_entry(str(tmp_path / "auth.json"), "a", lambda _: {"type": "api", "key": "k"})


async def test_a_server_without_a_login_is_just_connected() -> None:
    async with guarded() as server:
        server.is_open = True
        async with mcp_setup(web=remote(server)) as it:
            assert await it.servers.logins.begin("web") is None
            assert (await it.servers.logins.run("web")).status == "connected"
        assert "/register" not in server.paths()


async def test_a_server_that_is_switched_off_is_logged_in_to_and_stays_off() -> None:
    async with guarded() as server, mcp_setup(web=remote(server) | {"enabled": False}) as it:
        assert (await it.servers.logins.run("web", Browser())).status == "disabled"
        assert "web" in saved()


@pytest.mark.parametrize("changed", [{"oauth": False}, {"headers": {"Authorization": "Bearer x"}}])
async def test_a_server_without_oauth_fails_and_has_no_login(changed: dict[str, Any]) -> None:
    async with guarded() as server, mcp_setup(web={"type": "remote", "url": server.mcp_url, **changed}) as it:
        assert await state_of(it) == "failed"
        assert "HTTP 401" in str(it.servers.states["web"].error)
        assert not it.servers.logins.supports("web")
        with pytest.raises(ToolFailedError, match="does not support OAuth"):
            await it.servers.logins.begin("web")
        assert set(server.paths()) == {"/mcp"}


async def test_nothing_is_sent_for_the_server_of_an_untrusted_project() -> None:
    async with guarded() as server:
        Path("opencode.json").write_text(json.dumps({"mcp": {"web": remote(server)}}))
        shown: list[str] = []
        servers = McpServers(load(os.getcwd(), os.getcwd()), lambda event: None)
        async with asyncio.TaskGroup() as group:
            servers.begin(group)
            with pytest.raises(ToolFailedError, match="opensesh plugins --trust"):
                await servers.logins.run("web", shown.append)
            servers.end()
        assert not server.requests
        assert not shown


async def test_a_project_that_changes_the_login_of_a_users_server_needs_trust() -> None:
    async with guarded() as server:
        Path("opencode.json").write_text(
            json.dumps({"mcp": {"web": {"oauth": {"redirectUri": "https://evil.example"}}}})
        )
        async with mcp_setup(web=remote(server)) as it:
            assert await state_of(it) == "untrusted"


# The browser.


async def test_a_page_without_the_state_of_the_login_does_not_end_it() -> None:
    pages: list[tuple[int, str]] = []

    def interfere(url: str) -> str:
        query = dict(parse_qsl(urlsplit(url).query))
        back = query["redirect_uri"]
        origin = back.removesuffix("/mcp/oauth/callback")
        attempts = ("?code=theirs", "?code=theirs&state=theirs", f"?state={query['state']}", "?error=denied&state=x")
        pages.extend(browse(f"{back}{attempt}") for attempt in attempts)
        pages.append(browse(f"{origin}/elsewhere"))
        return url

    async with guarded() as server, mcp_setup(web=remote(server)) as it:
        assert (await it.servers.logins.run("web", Browser(interfere))).status == "connected"
    assert [status for status, _ in pages] == [400, 400, 400, 400, 404]


async def test_a_user_who_refuses_ends_the_login_and_the_text_stays_text() -> None:
    def refuse(url: str) -> str:
        query = dict(parse_qsl(urlsplit(url).query))
        error = {"error": "access_denied", "error_description": "<b>No</b>\x1b[2J", "state": query["state"]}
        return f"{query['redirect_uri']}?{urlencode(error)}"

    browser = Browser(refuse)
    async with guarded() as server, mcp_setup(web=remote(server)) as it:
        with pytest.raises(OAuthError, match=r"<b>No</b>\[2J"):
            await it.servers.logins.run("web", browser)
    assert "&lt;b&gt;No" in (await browser.page())[1]


async def test_an_answer_of_another_issuer_is_refused() -> None:
    def other_issuer(url: str) -> str:
        query = dict(parse_qsl(urlsplit(url).query))
        answer = {"code": "code-1", "state": query["state"], "iss": "https://evil.example"}
        return f"{query['redirect_uri']}?{urlencode(answer)}"

    async with guarded() as server, mcp_setup(web=remote(server)) as it:
        with pytest.raises(OAuthError, match="another authorization server"):
            await it.servers.logins.run("web", Browser(other_issuer))
        assert not server.token_requests


async def test_a_second_login_replaces_one_that_waits_for_its_browser() -> None:
    opened = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with guarded() as server, mcp_setup(web=remote(server)) as it:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(_error_of(it, lambda url: loop.call_soon_threadsafe(opened.set)))
            await opened.wait()
            assert (await it.servers.logins.run("web", Browser())).status == "connected"
        assert first.result() == "Authorization cancelled"


async def _error_of(it: McpSetup, show: Callable[[str], object]) -> str:
    try:
        await it.servers.logins.run("web", show)
    except OAuthError as error:
        return error.message
    return ""


async def test_a_port_that_is_taken_is_named() -> None:
    async with guarded() as server:
        port = int(server.url.rpartition(":")[2])
        async with mcp_setup(web=remote(server, callbackPort=port)) as it:
            with pytest.raises(OAuthError, match=f"port {port} cannot be used"):
                await it.servers.logins.run("web", Browser())


async def test_a_redirect_to_another_machine_cannot_be_waited_for() -> None:
    async with guarded() as server, mcp_setup(web=remote(server, redirectUri="https://elsewhere.example/cb")) as it:
        with pytest.raises(OAuthError, match="not an address of this machine"):
            await it.servers.logins.run("web", Browser())
        grant = await it.servers.logins.begin("web")
        assert grant is not None
        assert "elsewhere.example" in grant.url


# Hostile servers.


@pytest.mark.parametrize(
    ("metadata", "resource", "why"),
    [
        ({"issuer": "https://evil.example"}, {}, "is that of another server: https://evil.example"),
        ({"token_endpoint": "file:///etc/passwd"}, {}, "file:///etc/passwd is not used to log in"),
        ({"token_endpoint": "http://10.0.0.1/token"}, {}, "http://10.0.0.1/token is not used to log in"),
        ({"authorization_endpoint": "javascript:alert(1)"}, {}, "is not used to log in"),
        ({"registration_endpoint": "https://user:word@evil.example/"}, {}, "is not used to log in"),
        ({"token_endpoint": "http://[::1/token"}, {}, "is not a valid address"),
        ({"token_endpoint": 7}, {}, "did not answer with the JSON"),
        ({"code_challenge_methods_supported": ["plain"]}, {}, "does not support authorization codes with PKCE"),
        ({}, {"resource": "https://other.example/mcp"}, "is about another server"),
        ({}, {"resource": "http://[/"}, "is about another server"),
        ({}, {"authorization_servers": ["gopher://evil.example"]}, "gopher://evil.example is not used to log in"),
        ({}, {"authorization_servers": ["http://[/"]}, "is not a valid address"),
    ],
)
async def test_metadata_of_a_hostile_server_is_refused(
    metadata: dict[str, Any], resource: dict[str, Any], why: str
) -> None:
    async with guarded() as server:
        server.metadata, server.resource = metadata, resource
        async with mcp_setup(web=remote(server)) as it:
            assert await state_of(it) == "failed"
            assert why in str(it.servers.states["web"].error)
            with pytest.raises(OAuthError) as caught:
                await it.servers.logins.begin("web")
            assert why in caught.value.message
        assert not server.registrations


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((200, b"x" * (1 << 20)), "too much, or too slowly"),
        ((200, b"<html>not json</html>"), "did not answer with the JSON"),
        ((200, b"[" * 100_000), "did not answer with the JSON"),
        ((200, b"null"), "did not answer with the JSON"),
        ((500, b"oops"), "answered with HTTP 500"),
        ((302, b"", {"Location": "http://169.254.169.254/latest"}), "answered with HTTP 302"),
    ],
)
async def test_hostile_answers_to_discovery_are_refused(answer: Answer, why: str) -> None:
    async with guarded() as server:
        server.answers = {"/.well-known/oauth-authorization-server": lambda headers: answer}
        with pytest.raises(OAuthError, match=why):
            await asyncio.to_thread(discover, server.mcp_url, Challenge())


async def test_metadata_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "_ANSWER_SECONDS", 0.3)

    async def drip(exchange: Any) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
        for _ in range(1_000):
            await exchange.send(b" ")
            await asyncio.sleep(0.05)

    from ...models.loopback import serving

    async with serving(drip) as server:
        with pytest.raises(OAuthError, match="too slowly"):
            await asyncio.to_thread(discover, f"{server.url}/mcp", Challenge())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((200, b"<html>Welcome</html>"), "did not answer with the JSON"),
        ((200, {"access_token": "a\r\nX-Evil: 1"}), "cannot be sent as a bearer token"),
        ((200, {"access_token": "a", "token_type": "mac"}), "cannot be sent as a bearer token"),
        ((302, b"", {"Location": "http://127.0.0.1:9/token"}), "answered with HTTP 302"),
        ((400, {"error": "invalid_client", "error_description": "go\x1b[2Jaway"}), r"go \[2Jaway"),
    ],
)
async def test_hostile_answers_for_tokens_are_refused_and_nothing_is_stored(answer: Answer, why: str) -> None:
    async with guarded() as server, mcp_setup(web=remote(server)) as it:
        server.answers = {"/token": lambda headers: answer}
        state = await it.servers.logins.run("web", Browser())
        assert state.status == "failed"
        assert re.search(why, str(state.error))
    assert not logins_file().exists()


def test_a_server_of_the_internet_may_not_name_an_address_of_the_local_network() -> None:
    for url in ("https://127.0.0.1/token", "https://10.1.2.3/token", "https://169.254.169.254/", "https://[::1]/"):
        with pytest.raises(OAuthError, match="is in the network of this machine"):
            check_address(url, "https://1.1.1.1/mcp")
    check_address("https://10.1.2.3/token", "https://10.1.2.4/mcp")
    check_address("https://8.8.8.8/token", "https://1.1.1.1/mcp")
    with pytest.raises(OAuthError, match="only https"):
        check_address("http://10.1.2.3/mcp", "http://10.1.2.3/mcp")


def leading_to(*addresses: str) -> Callable[[str, int], list[str]]:
    return lambda host, port: list(addresses)


def test_only_a_server_of_this_machine_may_name_this_machine_whatever_its_name_leads_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(oauth, "lookup", leading_to("127.0.0.1"))
    for url in ("http://127.0.0.1:9200/token", "http://localhost/token", "https://inner.invalid/token"):
        with pytest.raises(OAuthError, match="is in the network of this machine"):
            check_address(url, "https://rebinding.invalid/mcp")
    check_address("http://127.0.0.1:9200/token", "http://localhost:8000/mcp")


async def test_a_login_connects_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    system = socket.getaddrinfo

    def lying(host: Any, *arguments: Any, **options: Any) -> Any:
        return system("127.0.0.2" if host == "localhost" else host, *arguments, **options)

    async with guarded() as server:
        monkeypatch.setattr(oauth, "lookup", leading_to("::1", "127.0.0.1"))
        monkeypatch.setattr(socket, "getaddrinfo", lying)
        url = server.mcp_url.replace("127.0.0.1", "localhost")
        with pytest.raises(OAuthError, match="is about another server"):  # the answer is that of 127.0.0.1
            await asyncio.to_thread(discover, url, Challenge())


async def test_metadata_may_be_at_the_older_places_and_behind_a_slash() -> None:
    def moved(headers: dict[str, str]) -> Answer:
        return 301, b"", {"Location": "/.well-known/oauth-authorization-server/"}

    async with guarded() as server:
        server.answers = {"/.well-known/oauth-protected-resource/mcp": lambda headers: (404, None)}
        endpoints = await asyncio.to_thread(discover, server.mcp_url, Challenge())
        assert (endpoints.token_endpoint, endpoints.resource) == (f"{server.url}/token", None)
        server.answers["/.well-known/oauth-authorization-server/"] = lambda headers: (
            200,
            {"issuer": server.url, "authorization_endpoint": f"{server.url}/a", "token_endpoint": f"{server.url}/t"},
        )
        server.answers["/.well-known/oauth-authorization-server"] = moved
        assert (await asyncio.to_thread(discover, server.mcp_url, Challenge())).token_endpoint == f"{server.url}/t"
        for path in ("oauth-authorization-server", "openid-configuration"):
            server.answers[f"/.well-known/{path}"] = lambda headers: (404, None)
        legacy = await asyncio.to_thread(discover, server.mcp_url, Challenge())
        assert legacy.registration_endpoint == f"{server.url}/register"


async def test_tokens_are_neither_logged_nor_shown_and_are_known_to_the_redaction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    async with guarded() as server, mcp_setup(web=remote(server)) as it:
        await it.servers.logins.run("web", Browser())
        await it.call("web_whoami")
        entry = saved()["web"]
        entry["tokens"] |= {"accessToken": "a-long-access-token-1", "refreshToken": "a-long-refresh-token-1"}
        save(web=entry)
        shown = f"{it.servers.states} {it.published}"
    assert "access-1" not in caplog.text + shown
    assert "refresh-1" not in caplog.text + shown
    assert {"a-long-access-token-1", "a-long-refresh-token-1"} <= known_secrets({})
