from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from opensesh.errors import StoreError
from opensesh.server.routes import all_operations
from opensesh.server.web.all_pages import all_pages
from opensesh.storage import open_store
from tests.history.sample_tree import Sample
from tests.security.test_damaged_pages import FIXTURES, page_count
from tests.security.test_odd_records import changed, every_mutation, make

from .serving import Client, serving

MARKUP = "\"'><img src=x onerror=alert(1)></script><script>alert(1)</script>"
UNESCAPED = ("<img src=x", "<script>alert", "onerror=alert(1)>")
SUBJECTS = ("/session", "/project", "/history", "/ui")
STREAMS = ("/history/events", "/ui/static", "/ui/enter")
QUERIES: dict[str, tuple[str, ...]] = {
    "/session": ("", "limit=1", "search=Odd", "roots=true"),
    "/history/search": ("q=Answer", "q=ls&kind=tool"),
    "/history/stats": tuple(f"by={name}" for name in ("day", "month", "project", "model", "agent", "tool", "session")),
    "/history/sessions": ("", "limit=1", "children=true&archived=true", "sort=cost"),
    "/history/sessions/{name}/export": tuple(f"format={name}" for name in ("json", "markdown", "html", "prompts")),
    "/ui/": ("", "sort=cost", "q=Odd"),
    "/ui/search": ("q=Answer",),
    "/ui/costs": ("", "by=model"),
    "/ui/session/{sessionID}/find": ("q=Answer",),
}
"""The queries with which an operation is requested, where that is not without one."""
LIMIT_SECONDS = 60.0


class Records(NamedTuple):
    """The ids of a session, and of a message and a part of it."""

    session: str
    message: str
    part: str


class Request(NamedTuple):
    """A request, and the session that it is about, if it is about one."""

    path: str
    session: str


def requests_about(sessions: Iterable[Records]) -> Iterator[Request]:
    """Every operation that reads stored records, for every session."""
    for operation in (*all_operations(), *all_pages()):
        path = operation.path
        if operation.method != "GET" or not path.startswith(SUBJECTS) or path.startswith(STREAMS):
            continue
        for query in QUERIES.get(path, ("",)):
            template = (f"{path}?{query}" if query else path).replace("{name}", "{sessionID}")
            if "{sessionID}" not in template:
                yield Request(template.replace("{projectID}", "proj"), "")
                continue
            for ids in sessions:
                filled = template.replace("{sessionID}", ids.session).replace("{messageID}", ids.message)
                yield Request(filled.replace("{partID}", ids.part), ids.session)


@asynccontextmanager
async def signed_in(directory: Path, store: Path) -> AsyncGenerator[Client]:
    """A server of a store, and a client that may also read its pages."""
    async with serving(directory, password="word", store=str(store)) as client:
        response = await client.http.post("/ui/enter", json={"code": "word"}, headers={"origin": client.url})
        assert response.status_code == 200, response.text
        yield client


async def answer(client: Client, path: str, context: object) -> httpx2.Response:
    async with asyncio.timeout(LIMIT_SECONDS):
        response = await client.http.get(path, headers={"x-opencode-directory": "/srv/dev/shop"})
    shown = (context, path, response.status_code, response.text[:500])
    assert "internal error" not in response.text, shown
    assert "Traceback" not in response.text, shown
    if "text/html" in response.headers.get("content-type", ""):
        assert not any(markup in response.text for markup in UNESCAPED), shown
    return response


async def check(client: Client, requests: Iterable[Request], usual: dict[str, int], odd: str, context: object) -> None:
    """Every request is answered as ever, except about the session that is damaged."""
    for request in requests:
        response = await answer(client, request.path, context)
        if request.session != odd:
            shown = (context, request.path, response.status_code, response.text[:500])
            assert response.status_code == usual[request.path], shown


def newest_records(root: Path, session_id: str) -> Records:
    message = max((root / "message" / session_id).iterdir()).stem
    return Records(session_id, message, max((root / "part" / message).iterdir()).stem)


async def attack_records(tmp_path: Path, choose: Callable[[list[Any]], Iterable[Any]]) -> None:
    root = tmp_path / "data" / "storage"
    root.mkdir(parents=True)
    sample = Sample(root)
    files = make(sample)
    odd = next(Path(path).stem for path in files if "/session/" in path)
    names = [folder.name for folder in (root / "message").iterdir()]
    requests = list(requests_about([newest_records(root, name) for name in names]))
    mutations = every_mutation(files)
    texts = {(path, location): (path, location, MARKUP) for path, location, _ in mutations if location}
    async with signed_in(tmp_path / "p", root) as client:
        usual = {request.path: (await answer(client, request.path, "healthy")).status_code for request in requests}
        for path, location, value in choose([*mutations, *texts.values()]):
            context = f"{Path(path).relative_to(root)} {location} = {str(value)[:50]!r}"
            Path(path).write_text(json.dumps(changed(files[path], location, value)), encoding="utf-8")
            await check(client, requests, usual, odd, context)
            Path(path).write_text(json.dumps(files[path]), encoding="utf-8")


FOUND: tuple[tuple[str, tuple[Any, ...], Any], ...] = (
    ("session", ("share", "url"), "\ud800"),
    ("session", ("share", "url"), "javascript:alert(1)"),
    ("session", ("title",), MARKUP),
    ("message", (), "x"),
    ("message", ("time",), {}),
    ("part", (), 7),
    ("todo", (0,), {}),
)
"""What was found to take a page down, or to be dangerous on one."""


def found_mutations(mutations: list[Any]) -> Iterator[Any]:
    for kind, location, value in FOUND:
        path = next(path for path, place, _ in reversed(mutations) if f"/{kind}/" in path and place == location)
        yield path, location, value


async def test_an_odd_record_affects_no_list_and_no_other_page(tmp_path: Path) -> None:
    def choose(mutations: list[Any]) -> list[Any]:
        return [*found_mutations(mutations), *random.Random(17).sample(mutations, 8)]

    await attack_records(tmp_path, choose)


@pytest.mark.slow
@pytest.mark.timeout(14_400)
async def test_no_odd_record_affects_a_list_or_another_page(tmp_path: Path) -> None:
    await attack_records(tmp_path, lambda mutations: mutations)


async def test_a_session_with_a_damaged_message_has_its_pages(tmp_path: Path) -> None:
    root = tmp_path / "data" / "storage"
    root.mkdir(parents=True)
    sample = Sample(root)
    session = sample.session("Work", share={"url": "javascript:alert(1)"})
    sample.prompt(session, "First words")
    damaged = sample.answer(session, "Answer")
    records = newest_records(root, session["id"])
    paths = [f"/ui/session/{session['id']}", f"/ui/session/{session['id']}/turns"]
    paths += [f"/history/sessions/{session['id']}/turns", f"/history/sessions/{session['id']}/live-turns"]
    async with signed_in(tmp_path / "p", root) as client:
        for path in (*paths, *(request.path for request in requests_about([records]))):
            await answer(client, path, "healthy")
        for content in (b'"\\ud800"', b"{}", b"", b'{"time":{"created":"x"}}', b"\xff"):
            (root / "message" / session["id"] / f"{damaged['id']}.json").write_bytes(content)
            for path in paths:
                response = await answer(client, path, content)
                assert response.status_code == 200, (content, path, response.text[:300])
                assert "First words" in response.text, (content, path)
                assert "javascript:" not in response.text


SPECIAL: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name),
    "folder": Path.mkdir,
    "outside": lambda path: path.symlink_to("/etc/passwd"),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("kind", ["session", "message", "part", "todo", "project"])
async def test_a_record_that_is_not_a_file_affects_no_list_and_no_other_page(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "data" / "storage"
    root.mkdir(parents=True)
    files = make(Sample(root))
    odd = next(Path(path).stem for path in files if "/session/" in path)
    names = [folder.name for folder in (root / "message").iterdir()]
    requests = list(requests_about([newest_records(root, name) for name in names]))
    path = Path(next(path for path in files if f"/{kind}/" in path))
    content = path.read_bytes()
    async with signed_in(tmp_path / "p", root) as client:
        usual = {request.path: (await answer(client, request.path, "healthy")).status_code for request in requests}
        for name, make_special in SPECIAL.items():
            path.unlink()
            make_special(path)
            await check(client, requests, usual, odd, (kind, name))
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            path.write_bytes(content)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "zeroed": lambda page: bytes(len(page)),
    "random": lambda page: random.Random(3).randbytes(len(page)),
    "half": lambda page: page[: len(page) // 2] + bytes(len(page) - len(page) // 2),
    "shifted": lambda page: page[1:] + page[:1],
}


async def attack_pages(fixture: str, choose: Callable[[int], Iterable[tuple[int, str]]], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    sample = Sample(folder / "storage")
    healthy = sample.talk("Healthy")["id"]
    database, source = folder / "opencode.db", FIXTURES / fixture / "opencode.db"
    size, count = page_count(source)
    requests = list(requests_about([newest_records(folder / "storage", healthy)]))
    for page, damage in choose(count):
        for path in folder.glob("opencode.db*"):
            path.unlink()
        shutil.copy(source, database)
        async with signed_in(tmp_path / "p", folder) as client:
            usual = {request.path: (await answer(client, request.path, "healthy")).status_code for request in requests}
            content = database.read_bytes()
            start, end = page * size, (page + 1) * size
            is_cut = damage == "shortened"
            changed_page = b"" if is_cut else DAMAGE[damage](content[start:end])
            database.write_bytes(content[:start] + changed_page + (b"" if is_cut else content[end:]))
            await check(client, requests, usual, "none", (fixture, page, damage))
            listed = await answer(client, "/history/sessions?limit=500", (fixture, page, damage))
            assert healthy in listed.text, (fixture, page, damage)
        try:
            open_store(str(database)).close()
        except StoreError:
            continue  # what writes, as a server does, is not begun: the database may have the newer copies
        async with signed_in(tmp_path / "p", folder) as client:
            await check(client, requests, usual, "none", (fixture, page, damage, "from the beginning"))


@pytest.mark.parametrize("fixture", ["opencode-1.2", "opencode-1.18.33"])
async def test_a_damaged_page_of_a_database_affects_no_other_store_on_a_server(fixture: str, tmp_path: Path) -> None:
    chosen = zip((0, 7, 20), ("random", "zeroed", "shortened"), strict=True)
    await attack_pages(fixture, lambda _: chosen, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("fixture", ["opencode-1.2", "opencode-1.18.33"])
async def test_no_damaged_page_of_a_database_affects_another_store_on_a_server(fixture: str, tmp_path: Path) -> None:
    def choose(count: int) -> Iterator[tuple[int, str]]:
        return ((page, damage) for page in range(count) for damage in (*DAMAGE, "shortened"))

    await attack_pages(fixture, choose, tmp_path)
