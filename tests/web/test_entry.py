from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from opensesh.server.web.browsers import SIGN_IN_SECONDS, Browsers
from opensesh.server.web.server_file import request_ticket

from ..server.serving import Client, serving


class SignedIn:
    """A client with the headers of a browser page of the server."""

    def __init__(self, client: Client, cookie: str, key: str) -> None:
        self.client = client
        self.headers = {"origin": client.url, "sec-fetch-site": "same-origin", "cookie": cookie, "x-opensesh-key": key}

    async def request(self, method: str, path: str, without: str = "", **changed: str) -> httpx2.Response:
        headers = {name: value for name, value in self.headers.items() if name != without}
        headers |= {name.replace("_", "-"): value for name, value in changed.items()}
        return await bare(self.client).request(method, path, headers=headers)


def bare(client: Client) -> httpx2.AsyncClient:
    """Return a client without the authorization and without cookies of earlier answers."""
    client.http.auth = httpx2.Auth()
    client.http.cookies.clear()
    return client.http


async def ticket(client: Client) -> str:
    issued = await asyncio.to_thread(request_ticket, None)
    assert issued is not None
    assert issued[0] == client.url
    return issued[1]


async def redeem(client: Client, code: str, **headers: str) -> httpx2.Response:
    sent = {"origin": client.url, "sec-fetch-site": "same-origin"} | headers
    return await bare(client).post("/ui/enter", json={"code": code}, headers=sent)


async def sign_in(client: Client) -> SignedIn:
    response = await redeem(client, await ticket(client))
    assert response.status_code == 200, response.text
    cookie = response.headers["set-cookie"].partition(";")[0]
    return SignedIn(client, cookie, response.json()["key"])


async def test_a_ticket_becomes_a_strict_cookie_and_a_key_once(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        code = await ticket(client)
        response = await redeem(client, code)
        cookie = response.headers["set-cookie"]
        port = client.url.rpartition(":")[2]
        assert cookie.startswith(f"opensesh_{port}=")
        assert {"httponly", "samesite=strict", "path=/", f"max-age={SIGN_IN_SECONDS}"} <= {
            word.strip().lower() for word in cookie.split(";")
        }
        assert response.json()["key"] not in cookie
        again = await redeem(client, code)
        assert again.status_code == 403
        assert "set-cookie" not in again.headers
        assert (await redeem(client, "")).status_code == 403


def test_tickets_and_sign_ins_end_after_their_time() -> None:
    now = [1000.0]
    browsers = Browsers(lambda: now[0])
    first, second = browsers.issue_ticket(), browsers.issue_ticket()
    now[0] += 119  # the two minutes that are promised
    assert browsers.redeem(first)
    assert not browsers.redeem(first)
    now[0] += 2
    assert not browsers.redeem(second)
    cookie, _ = browsers.sign_in("test")
    headers = {"cookie": f"{browsers.cookie_name}={cookie}"}
    now[0] += 7 * 24 * 3600 - 1  # a week
    assert browsers.identify(headers)
    now[0] += 7 * 24 * 3600 + 1
    assert browsers.identify(headers) is None
    assert browsers.signed_in() == []


async def test_pages_need_the_cookie_of_this_server(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        browser = await sign_in(client)
        assert (await browser.request("GET", "/ui/")).status_code == 200
        assert (await browser.request("GET", "/ui/", without="x-opensesh-key")).status_code == 200
        for cookie in ("", "opensesh=1", f"{browser.headers['cookie'].partition('=')[0]}=guess", "=;=", "a b c"):
            response = await browser.request("GET", "/ui/", cookie=cookie)
            assert response.status_code == 401
            assert "opensesh web" in response.text
            assert "www-authenticate" not in response.headers
        async with serving(tmp_path / "q") as other:
            name = f"opensesh_{other.url.rpartition(':')[2]}"
            theirs = f"{name}={browser.headers['cookie'].partition('=')[2]}"
            stranger = SignedIn(other, theirs, browser.headers["x-opensesh-key"])
            assert (await stranger.request("GET", "/ui/")).status_code == 401


async def test_a_cookie_of_an_earlier_start_of_the_server_is_not_accepted(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        browser = await sign_in(client)
    async with serving(tmp_path / "p") as client:
        later = SignedIn(client, browser.headers["cookie"], browser.headers["x-opensesh-key"])
        name = f"opensesh_{client.url.rpartition(':')[2]}"
        later.headers["cookie"] = f"{name}={browser.headers['cookie'].partition('=')[2]}"
        assert (await later.request("GET", "/ui/")).status_code == 401


async def test_a_change_needs_cookie_key_and_own_origin(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        browser = await sign_in(client)
        path = "/ui/browsers/nothing"
        assert (await browser.request("DELETE", path)).status_code == 404
        for without in ("cookie", "x-opensesh-key"):
            assert (await browser.request("DELETE", path, without=without)).status_code == 403, without
        assert (await browser.request("DELETE", path, x_opensesh_key="guess")).status_code == 403
        for origin in ("null", "http://127.0.0.1:1", "https://evil.example", client.url + ".evil.example", ""):
            assert (await browser.request("DELETE", path, origin=origin)).status_code == 403, origin
        for site in ("same-site", "cross-site", "none"):
            assert (await browser.request("DELETE", path, sec_fetch_site=site)).status_code == 403, site
        headers = {name: browser.headers[name] for name in ("cookie", "x-opensesh-key")}
        assert (await bare(client).delete(path, headers=headers)).status_code == 403
        own = re.findall(r'data-end="(\w+)"', (await browser.request("GET", "/ui/settings")).text)
        assert (await browser.request("DELETE", f"/ui/browsers/{own[0]}")).status_code == 204
        assert (await browser.request("GET", "/ui/")).status_code == 401


async def test_a_page_of_another_site_gets_nothing_and_a_link_one_page_with_one_link(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        browser = await sign_in(client)
        for site in ("cross-site", "same-site"):
            for mode in ("no-cors", "cors"):
                response = await browser.request(
                    "GET", "/ui/", without="origin", sec_fetch_site=site, sec_fetch_mode=mode
                )
                assert response.status_code == 403
                assert "access-control-allow-origin" not in response.headers
            navigation = {"sec_fetch_site": site, "sec_fetch_mode": "navigate"}
            response = await browser.request("GET", "/ui/settings?a=%22%3E", without="origin", **navigation)
            assert response.status_code == 401
            assert re.findall(r'href="(/ui/settings[^"]*)"', response.text) == ["/ui/settings?a=%22%3E"]
            assert "Signed-in browsers" not in response.text
            for path in ("/ui/tickets", "/ui/browsers/x"):
                assert (await browser.request("GET", path, without="origin", **navigation)).status_code in (401, 403)
            posted = await browser.request("POST", "/ui/enter", **navigation)
            assert posted.status_code == 403


async def test_forms_plain_text_and_other_methods_change_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        browser = await sign_in(client)
        own = {"origin": client.url, "sec-fetch-site": "same-origin"}
        for kind in ("text/plain", "multipart/form-data", ""):
            code = await ticket(client)
            sent = own | {"content-type": kind}
            response = await bare(client).post("/ui/enter", content=json.dumps({"code": code}), headers=sent)
            assert response.status_code == 415
        assert (await browser.request("HEAD", "/ui/")).status_code == 200
        for method in ("PUT", "PATCH", "POST"):
            assert (await browser.request(method, "/ui/")).status_code in (404, 405)
        preflight = await browser.request("OPTIONS", "/ui/", origin="http://localhost:3000", sec_fetch_site="same-site")
        assert preflight.status_code == 403
        assert "access-control-allow-origin" not in preflight.headers


async def test_a_form_signs_in_without_scripts(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        own = {"origin": client.url, "sec-fetch-site": "same-origin"}
        response = await bare(client).post("/ui/enter", data={"code": await ticket(client)}, headers=own)
        assert (response.status_code, response.headers["location"]) == (303, "/ui/")
        assert "set-cookie" in response.headers
        refused = await bare(client).post("/ui/enter", data={"code": "guess"}, headers=own)
        assert refused.status_code == 403
        assert "set-cookie" not in refused.headers


async def test_tickets_are_only_for_programs_with_the_control_token(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        for value in ("", "Bearer guess", "Basic Z3Vlc3M=", "Bearer"):
            response = await bare(client).post("/ui/tickets", headers={"authorization": value})
            assert response.status_code == 401
        browser = await sign_in(client)
        assert (await browser.request("POST", "/ui/tickets")).status_code == 403
        files = list((Path(os.environ["HOME"]) / ".local/state/opensesh/servers").iterdir())
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600]
        assert stat.S_IMODE(files[0].parent.stat().st_mode) == 0o700
    assert not files[0].exists()


async def test_a_file_of_a_server_that_was_killed_is_removed(tmp_path: Path) -> None:
    folder = Path(os.environ["HOME"]) / ".local/state/opensesh/servers"
    async with serving(tmp_path / "p"):
        (file,) = folder.iterdir()
        content = file.read_bytes()
    file.write_bytes(content)
    assert await asyncio.to_thread(request_ticket, None) is None
    assert list(folder.iterdir()) == []


async def test_every_page_has_the_strict_headers(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        browser = await sign_in(client)
        for path in ("/ui/", "/ui/settings", "/ui/keys", "/ui/enter", "/ui/nothing", "/ui/session/ses_nothing"):
            response = await browser.request("GET", path, accept="text/html")
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
            assert "require-trusted-types-for 'script'; trusted-types opensesh" in policy
            assert "unsafe" not in policy
            assert response.headers["cache-control"] == "no-store"
            assert response.headers["cross-origin-opener-policy"] == "same-origin"
            assert response.headers["cross-origin-resource-policy"] == "same-origin"
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers.get_list("referrer-policy") == [
                "same-origin" if path == "/ui/enter" else "no-referrer"
            ]
            assert " style=" not in response.text
            assert not re.search(r"<script(?![^>]*\ssrc=)", response.text)
        style = re.findall(r'href="(/ui/static/\w+/base.css)"', response.text)[0]
        response = await bare(client).get(style)
        assert "immutable" in response.headers["cache-control"]
        assert response.headers["content-type"].startswith("text/css")


async def test_an_id_that_is_a_path_reaches_no_file(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        browser = await sign_in(client)
        for path in (
            "/ui/static/x/..%2f..%2fbrowsers.py",
            "/ui/static/x/%2e%2e/browsers.py",
            "/ui/static/x/browsers.py",
            "/ui/session/..%2f..%2fetc%2fpasswd",
            "/ui/session/ses_%00",
            "/ui/browsers/..%2fx",
        ):
            response = await browser.request("GET", path)
            assert response.status_code in (400, 404, 405), path
            assert "import" not in response.text


async def test_the_root_leads_navigations_to_the_pages_and_programs_to_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path / "p", password="secret") as client:
        navigation = {"sec-fetch-mode": "navigate", "sec-fetch-site": "none", "accept": "text/html"}
        response = await bare(client).get("/", headers=navigation)
        assert (response.status_code, response.headers["location"]) == (307, "/ui/")
        assert (await bare(client).get("/")).status_code == 401
    async with serving(tmp_path / "p") as client:
        assert (await bare(client).get("/")).json()["name"] == "NotFoundError"
    interface = tmp_path / "interface"
    interface.mkdir()
    (interface / "index.html").write_text("<title>built</title>")
    async with serving(tmp_path / "p", web_ui=str(interface)) as client:
        assert "built" in (await bare(client).get("/", headers=navigation)).text


async def test_cookie_and_key_count_as_the_password_and_neither_does_alone(tmp_path: Path) -> None:
    async with serving(tmp_path / "p", password="secret") as client:
        browser = await sign_in(client)
        assert (await browser.request("GET", "/session")).status_code == 200
        assert (await browser.request("GET", "/session", without="origin")).status_code == 200
        assert (await browser.request("POST", "/session")).status_code == 200
        for without in ("cookie", "x-opensesh-key"):
            for method in ("GET", "POST"):
                assert (await browser.request(method, "/session", without=without)).status_code == 401
        other_port = await browser.request("POST", "/session", origin="http://127.0.0.1:1", sec_fetch_site="same-site")
        assert other_port.status_code == 401
        response = await redeem(client, "secret")
        assert response.status_code == 200
        assert (await redeem(client, "guess")).status_code == 403


async def test_a_page_changes_the_history_only_with_cookie_and_key(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        browser = await sign_in(client)
        session_id = await client.create()
        body = {"sessions": [session_id]}

        async def archive(**headers: str) -> int:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            return (await bare(client).post("/history/sessions/archive", json=body, headers=sent)).status_code

        own = {name.replace("-", "_"): value for name, value in browser.headers.items()}
        assert await archive(**own) == 200
        assert await archive() == 200
        for changes in ({"x_opensesh_key": ""}, {"cookie": ""}, {"origin": "http://localhost:3000"}):
            assert await archive(**own | changes) == 403
        assert await archive(origin="http://localhost:3000") == 403


async def test_wrong_hosts_are_refused_on_pages(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        browser = await sign_in(client)
        for host in ("evil.example", "127.0.0.1.evil.example:4096", ""):
            for path in ("/ui/", "/ui/enter", "/ui/tickets"):
                assert (await browser.request("GET", path, host=host)).status_code in (400, 403)


@pytest.mark.parametrize("command", ["web", "serve"])
def test_the_command_finds_a_running_server_of_the_store(command: str, tmp_path: Path) -> None:
    def web(*words: str) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-m", "opensesh", *words]
        return subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    options = ["--no-open", "--json"] if command == "web" else []
    first = web(command, "--port", "0", *options)
    assert first.stdout is not None
    try:
        line = ""
        while not (url := re.search(r"http://[0-9.:]+", line)):
            line = first.stdout.readline()
        url = f"{url[0]}/ui/"
        second = web("web", "--no-open", "--json")
        output, errors = second.communicate(timeout=30)
        result = json.loads(output)
        assert (result["url"], result["started"], result["opened"]) == (url, False, False), errors
        assert result["enter"].startswith(f"{url}enter#")
        third = web("web", "--no-open")
        output, errors = third.communicate(timeout=30)
        port = url.split(":")[2].partition("/")[0]
        assert re.fullmatch(rf"{url}enter#\S{{22}}\n", output)
        assert f"ssh -L {port}:127.0.0.1:{port} " in errors
        if command == "web":
            response = httpx2.get(url.replace("/ui/", "/session"), trust_env=False)
            assert response.status_code == 401
    finally:
        first.terminate()
        first.communicate(timeout=30)


def test_the_browser_is_given_a_file_that_only_the_user_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {tmp_path}/opened\n')
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{program} %s")
    command = [sys.executable, "-m", "opensesh"]
    served = subprocess.Popen([*command, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    try:
        served.stdout.readline()
        done = subprocess.run([*command, "web", "--json"], capture_output=True, text=True, timeout=60, check=True)
        answer = json.loads(done.stdout)
        assert answer["opened"] is True
        address = (tmp_path / "opened").read_text()
        assert answer["enter"].partition("#")[2] not in address
        file = Path(address.removeprefix("file://"))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert answer["enter"] in file.read_text()
    finally:
        served.terminate()
        served.communicate(timeout=30)
