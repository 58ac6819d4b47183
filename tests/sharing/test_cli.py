from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from opensesh.project import resolve
from opensesh.sessions import Sessions
from opensesh.storage import open_store, revocations
from opensesh.storage.json_tree.store import JsonTree

from ..cli.running import Screen, Terminal, write_script
from ..history.sample_tree import Sample
from .process import Server

KEY = "sk-ant-api03-" + "Zz9" * 20


@pytest.fixture
def server(tmp_path: Path, isolated: Path) -> Iterator[Server]:
    result = Server(tmp_path / "shares")
    result.start()
    folder = isolated / ".config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.json").write_text(json.dumps({"enterprise": {"url": result.url}}))
    yield result
    result.stop()


def status(url: str) -> int:
    return httpx2.get(url).status_code


def test_a_session_goes_out_comes_back_equal_and_is_taken_down(
    terminal: Terminal, server: Server, sample: Sample, tmp_path: Path
) -> None:
    session = sample.talk("Fix the parser")
    answer = sample.answer(session, "# Done\n\n- one\n- two")
    sample.tool(answer, "edit", input={"filePath": "a.py"}, metadata={"diff": "--- a\n+++ b\n-x\n+y"})
    diff = [{"file": "a.py", "before": "x\n", "after": "y\n", "additions": 1, "deletions": 1}]
    sample.write(("session_diff", session["id"]), diff)
    url = terminal.run("session", "share", session["id"]).strip()
    assert url.startswith(f"{server.url}/share/")
    assert "Fix the parser" in httpx2.get(url).text

    copy = tmp_path / "copy"
    there = terminal.json("import", url, "--store", str(copy))
    assert there["counts"] == {"added": 1}
    ours, theirs = JsonTree(sample.root), JsonTree(copy / "storage")
    key = ("session", "proj", session["id"])
    shared = ours.read(key)
    assert theirs.read(key) == {name: value for name, value in shared.items() if name != "share"}
    assert theirs.messages(session["id"]) == ours.messages(session["id"])
    assert theirs.read(("session_diff", session["id"])) == diff
    assert terminal.json("import", url, "--store", str(copy))["counts"] == {"unchanged": 1}
    assert terminal.json("import", url)["counts"] == {"unchanged": 1}

    again = terminal.json("session", "share", session["id"])
    assert (again["url"], again["new"], again["sent"]) == (url, False, 0)
    assert "was removed" in terminal.run("session", "unshare", session["id"])
    assert status(url) == 404
    assert terminal.run("session", "unshare", session["id"]) == ""
    assert terminal.code == 3
    assert terminal.run("import", url) == ""
    assert terminal.code == 3
    assert "not any more" in terminal.error


def test_redactions_are_reported(terminal: Terminal, server: Server, sample: Sample) -> None:
    session = sample.session("x")
    sample.prompt(session, f"use {KEY}")
    shared = terminal.json("session", "share", session["id"])
    assert shared["redacted"] == {"anthropic-key": 1}
    assert KEY not in httpx2.get(shared["url"]).text
    terminal.run("session", "share", session["id"], "--no-redact")
    assert KEY in httpx2.get(shared["url"]).text
    terminal.run("session", "share", session["id"])
    assert KEY in httpx2.get(shared["url"]).text


def test_a_key_that_looks_like_nothing_is_known_from_where_it_is_kept(
    terminal: Terminal, server: Server, sample: Sample, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_DATABASE_PASSWORD", "correct horse battery")
    folder = isolated / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    (folder / "auth.json").write_text(json.dumps({"shop": {"type": "api", "key": "plain-old-words"}}))
    session = sample.session("x")
    sample.prompt(session, "it said: correct horse battery, and plain-old-words")
    shared = terminal.json("session", "share", session["id"])
    assert shared["redacted"] == {"known-secret": 2}


def test_sharing_to_the_default_server_asks_first(
    terminal: Terminal, sample: Sample, screen: Callable[..., Screen]
) -> None:
    session = sample.talk("Mine")
    assert terminal.run("session", "share", session["id"]) == ""
    assert terminal.code == 2
    assert "opncd.ai" in terminal.error
    assert "--yes" in terminal.error
    shown = screen("session", "share", session["id"])
    shown.until("Share it? [y/N]")
    assert "https://opncd.ai" in shown.text
    assert "everyone who has the link" in " ".join(shown.text.split())
    shown.type("n\n")
    assert shown.end() == 2
    assert "nothing was shared" in shown.text


def test_a_server_that_the_project_names_is_asked_about_first(
    terminal: Terminal, sample: Sample, tmp_path: Path, server: Server
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "opencode.json").write_text(json.dumps({"share": "auto", "enterprise": {"url": "http://127.0.0.1:9"}}))
    session = sample.talk("x", directory=str(project))
    assert terminal.run("session", "share", session["id"]) == ""
    assert terminal.code == 2
    assert "opencode.json" in terminal.error


@pytest.mark.parametrize("how", ["flag", "config"])
def test_sharing_can_be_forbidden(
    terminal: Terminal, sample: Sample, server: Server, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    session = sample.talk()
    url = terminal.run("session", "share", session["id"]).strip()
    if how == "flag":
        monkeypatch.setenv("OPENCODE_DISABLE_SHARE", "1")
    else:
        monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", '{"share": "disabled"}')
    assert terminal.run("session", "share", session["id"], "--yes") == ""
    assert terminal.code == 2
    assert "sharing is disabled" in terminal.error
    terminal.run("session", "unshare", session["id"])
    assert status(url) == 404


def test_a_share_is_down_when_its_session_is_gone_for_good(terminal: Terminal, sample: Sample, server: Server) -> None:
    session = sample.talk()
    url = terminal.run("session", "share", session["id"]).strip()
    terminal.run("session", "remove", session["id"], "--yes")
    assert "Still shared" in terminal.error
    assert status(url) == 200
    terminal.run("session", "trash", "--empty", "--yes")
    assert f"{url} was removed" in terminal.error
    assert status(url) == 404


def test_the_share_of_a_session_in_the_trash_is_taken_down_and_made_anew_when_it_is_back(
    terminal: Terminal, server: Server, isolated: Path
) -> None:
    sample = Sample(isolated / ".local" / "share" / "opencode" / "storage")
    session = sample.talk()
    url = terminal.run("session", "share", session["id"]).strip()
    shutil.rmtree(isolated / ".local" / "state" / "opensesh" / "shares")  # as if OpenCode had shared it
    terminal.run("session", "remove", session["id"], "--yes")
    assert "was removed" in terminal.run("session", "unshare", session["id"])
    assert status(url) == 404
    terminal.run("session", "restore", "last")
    again = terminal.json("session", "share", session["id"])
    assert (again["new"], again["behind"]) == (True, None)
    assert (again["url"] != url, status(again["url"])) == (True, 200)


def test_a_share_outlives_neither_its_session_nor_a_server_that_was_down(
    terminal: Terminal, sample: Sample, server: Server
) -> None:
    names = [sample.talk()["id"] for _ in range(3)]
    urls = {name: terminal.run("session", "share", name).strip() for name in names}
    server.stop()
    terminal.run("session", "remove", names[0], "--yes")
    terminal.run("session", "trash", "--empty", "--yes")
    assert terminal.code == 0
    assert "still exists" in terminal.error
    terminal.run("session", "unshare", names[1])
    assert terminal.code == 1
    assert "cannot be reached" in terminal.error
    again = "it is retried by the next 'opensesh run', or with 'opensesh session unshare --pending"
    assert f"; the share still exists; {again}" in terminal.error
    Sessions(open_store(), resolve(".")).purge(names[2])
    reported = terminal.run("doctor")
    assert all(url in reported for url in urls.values())
    assert "unshare --pending" in reported
    pending = terminal.json("session", "unshare", "--pending")
    assert pending["takenDown"] == 0
    assert terminal.code == 1
    assert f"Removal failed; {again}" in terminal.error

    server.start()
    assert "was removed" in terminal.run("session", "unshare", names[2][:-2])
    pending = terminal.json("session", "unshare", "--pending")
    assert pending["takenDown"] == 2
    assert {status(url) for url in urls.values()} == {404}
    assert list(revocations.waiting()) == []
    assert "No shares are pending" in terminal.run("session", "unshare", "--pending")
    assert names[1] in terminal.run("list", "--json")


def test_a_share_that_waits_is_a_matter_of_its_own_store(
    terminal: Terminal, sample: Sample, server: Server, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "storage"
    other.mkdir(parents=True)
    there = Sample(other)
    away = ("--store", str(other))
    removed, unshared, local = there.talk()["id"], there.talk()["id"], sample.talk()["id"]
    gone, taken = (terminal.run("session", "share", name, *away).strip() for name in (removed, unshared))
    server.stop()
    terminal.run("session", "remove", removed, "--yes", *away)
    terminal.run("session", "trash", "--empty", "--yes", *away)
    assert f"--pending --store {other}' tries again" in terminal.error
    terminal.run("session", "unshare", unshared)
    assert terminal.code == 1
    server.start()

    terminal.run("session", "remove", local, "--yes")
    terminal.run("session", "trash", "--empty", "--yes")
    assert "share" not in terminal.error
    assert "http" not in terminal.run("doctor")
    assert "No shares are pending" in terminal.run("session", "unshare", "--pending")
    assert f"--pending --store {other}\n" in terminal.error
    reported = terminal.run("doctor", *away)
    assert f"the session is gone, but {gone}" in reported
    assert f"it was to be unshared, but {taken}" in reported
    assert (status(gone), status(taken)) == (200, 200)
    assert terminal.json("session", "unshare", "--pending", *away)["takenDown"] == 2
    assert (status(gone), status(taken)) == (404, 404)
    assert "share" not in JsonTree(other).read(("session", "proj", unshared))


def test_a_share_is_taken_down_by_its_link(terminal: Terminal, sample: Sample, server: Server) -> None:
    session = sample.talk()
    url = terminal.run("session", "share", session["id"]).strip()
    assert "was removed" in terminal.run("session", "unshare", url)
    assert status(url) == 404


def test_invalid_arguments_are_reported(terminal: Terminal, sample: Sample, server: Server) -> None:
    for words in (("session", "unshare"), ("session", "unshare", "x", "--pending"), ("import", f"{server.url}/x")):
        terminal.run(*words)
        assert terminal.code == 2, words
    terminal.run("session", "unshare", "ses_unknown")
    assert terminal.code == 3
    terminal.run("import", f"{server.url}/share/unknown-name")
    assert terminal.code == 3
    terminal.run("serve-share", "--host", "0.0.0.0")
    assert (terminal.code, "--allow-remote" in terminal.error) == (2, True)
    terminal.run("serve-share", "--port", "next")
    assert "'next' is not a port" in terminal.error
    terminal.run("serve-share", "--port", "99999")
    assert terminal.code == 2
    terminal.run("serve-share", "--port", str(server.port))
    assert (terminal.code, "choose another with --port" in terminal.error) == (1, True)
    terminal.run("serve-share", "--url", "ftp://x", "--port", "0")
    assert terminal.code == 2
    terminal.run("serve-share", "--trusted-proxy", "*", "--port", "0")
    assert (terminal.code, "address or a network" in terminal.error) == (2, True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_on_a_signal(server: Server, number: signal.Signals) -> None:
    began = time.monotonic()
    server.stop(number)
    assert time.monotonic() - began < 60


def test_a_server_that_a_script_started_in_the_background_can_be_interrupted_at_once(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start("sh", "-c", 'trap "" INT; exec "$@"', "sh")
    assert server.stop(signal.SIGINT) == 0


# -- runs --------------------------------------------------------------------------------------------------------------


def last(terminal: Terminal) -> Any:
    return terminal.json("show", "last")


def test_a_run_is_shared_when_asked(terminal: Terminal, server: Server) -> None:
    model = write_script(f"SAY The key is {KEY}.")
    assert "The key" in terminal.run("run", "--share", "-m", model, "Hello")
    reported = terminal.error
    url = last(terminal)["info"]["share"]["url"]
    assert f"shared at {url}" in reported
    page = httpx2.get(url).text
    assert "The key is [redacted:anthropic-key]." in page
    assert "Hello" in page
    terminal.run("run", "--continue", "-m", write_script("SAY More of it."), "Go on")
    assert "More of it." in httpx2.get(url).text


def test_a_run_is_not_shared_by_default(terminal: Terminal, server: Server, tmp_path: Path) -> None:
    terminal.run("run", "-m", write_script("SAY hi"), "Hello")
    assert "share" not in last(terminal)["info"]
    with closing(sqlite3.connect(tmp_path / "shares" / "shares.db")) as kept:
        assert kept.execute("SELECT count(*) FROM share").fetchone() == (0,)


def test_runs_are_shared_by_settings_of_the_user_and_not_of_a_project(
    terminal: Terminal, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("opencode.json").write_text('{"share": "auto"}')
    terminal.run("run", "-m", write_script("SAY hi"), "Hello")
    assert 'sets "share"' in terminal.error
    assert "share" not in last(terminal)["info"]
    monkeypatch.setenv("OPENCODE_AUTO_SHARE", "1")
    terminal.run("run", "-m", write_script("SAY hi"), "Hello")
    assert status(last(terminal)["info"]["share"]["url"]) == 200


def test_a_run_continues_without_its_share_server(terminal: Terminal, server: Server) -> None:
    server.stop()
    began = time.monotonic()
    assert terminal.run("run", "--share", "-m", write_script("SAY hi"), "Hello").strip() == "hi"
    assert terminal.code == 0
    assert "is not shared" in terminal.error
    assert time.monotonic() - began < 60


def test_a_run_asks_before_it_shares_with_strangers(terminal: Terminal, isolated: Path) -> None:
    terminal.run("run", "--share", "-m", write_script("SAY hi"), "Hello")
    assert terminal.code == 2
    assert "opncd.ai" in terminal.error
    assert not os.path.exists(isolated / ".local" / "share" / "opencode" / "storage" / "message")


def test_the_example_in_the_documentation_works(sample: Sample, server: Server) -> None:
    page = Path(__file__).parents[2] / "docs" / "sharing.md"
    example = page.read_text().partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(example, str(page), "exec"), names)  # what the page tells people to write
    assert status(asyncio.run(names["share"](sample.talk()["id"]))) == 200
