from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from opensesh.cli.main import run
from opensesh.errors import StoreError
from opensesh.storage import find_stores
from opensesh.storage.locations import settings_file
from opensesh.storage.opencode_db.store import OpencodeDB

from .opencode_databases import PROJECT, empty_database, new_answer, new_message, new_session, new_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def store_settings(isolated: Path, content: str) -> None:
    file = isolated / ".config" / "opensesh" / "settings.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    assert settings_file() == str(file)


def test_a_setting_names_the_store_unless_the_environment_does(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_settings(isolated, json.dumps({"store": str(isolated / "mine")}))
    assert find_stores().path == str(isolated / "mine")
    assert find_stores(str(isolated / "named")).path == str(isolated / "named")
    monkeypatch.setenv("OPENSESH_STORE", str(isolated / "other"))
    assert find_stores().path == str(isolated / "other")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not an object in JSON"),
        ("3", "not an object in JSON"),
        ('{"store": 3}', "store must be a text"),
        ('{"shop": "x"}', "unknown setting shop; known are opencodeServer, store"),
    ],
)
def test_settings_that_cannot_be_read_are_an_error_that_names_the_file(
    isolated: Path, content: str, reason: str
) -> None:
    store_settings(isolated, content)
    with pytest.raises(StoreError, match=reason) as caught:
        find_stores()
    assert settings_file() in str(caught.value)


def test_a_store_of_the_settings_that_does_not_exist_is_an_error(
    isolated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_settings(isolated, json.dumps({"store": str(isolated / "nowhere")}))
    assert run(["list"]) != 0
    assert "nowhere does not exist" in capsys.readouterr().err


class Server(ThreadingHTTPServer):
    """Notes the requests that it gets."""

    requests: list[tuple[str, Any, str | None]]


class Handler(BaseHTTPRequestHandler):
    def do_PATCH(self) -> None:
        assert isinstance(self.server, Server)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, body, self.headers["authorization"]))
        self.send_response(200)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as opened:
        opened.requests = []
        thread = threading.Thread(target=opened.serve_forever)
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def finish_announcing() -> None:
    for thread in threading.enumerate():
        if thread.name == "opensesh-wake":
            thread.join()


def test_a_server_is_asked_to_announce_what_was_written(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENSESH_OPENCODE_SERVER", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "secret")
    with OpencodeDB(empty_database(tmp_path)) as store:
        store.write(("session", PROJECT, "ses_1"), new_session(title="one"))
        finish_announcing()
        with store.batch() as batch:
            batch.write(("message", "ses_1", "msg_1"), new_message())
            batch.write(("message", "ses_1", "msg_2"), new_answer(time={"created": 2, "completed": 3}))
            batch.write(("part", "msg_2", "prt_1"), new_text("msg_2"))
        store.update(("session", PROJECT, "ses_1"), lambda info: info.update(title="two"))
        finish_announcing()
        store.remove(("session", PROJECT, "ses_1"))
        finish_announcing()
    assert [(path, body) for path, body, _ in server.requests] == [
        ("/session/ses_1", {"title": "one"}),
        ("/session/ses_1", {"title": "two"}),
        ("/session/ses_1/message/msg_2/part/prt_1", new_text("msg_2")),
    ]
    assert {authorization for _, _, authorization in server.requests} == {"Basic b3BlbmNvZGU6c2VjcmV0"}


def test_a_server_that_does_not_answer_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENSESH_OPENCODE_SERVER", "http://127.0.0.1:9")
    with OpencodeDB(empty_database(tmp_path)) as store:
        for title in ("one", "two"):
            store.write(("session", PROJECT, "ses_1"), new_session(title=title))
            finish_announcing()
        assert store.read(("session", PROJECT, "ses_1"))["title"] == "two"
    assert [record.getMessage().partition(" does not")[0] for record in caplog.records] == ["http://127.0.0.1:9"]


def test_an_address_that_is_not_one_of_a_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESH_OPENCODE_SERVER", "file:///etc/passwd")
    with pytest.raises(StoreError, match="not the address of a server"):
        OpencodeDB(empty_database(tmp_path))
