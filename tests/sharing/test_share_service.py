from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from opensesh.errors import BusyError, NotFoundError, ReadOnlyStoreError, ShareError, UsageError
from opensesh.records import Share, view
from opensesh.retry import RetryPolicy
from opensesh.sharing import share_records
from opensesh.sharing.client import ShareServer, server_of
from opensesh.sharing.items import ShareItem, assemble
from opensesh.sharing.share_service import retry_delay_seconds
from opensesh.storage import keys, paths, revocations
from opensesh.storage.leases import leases_of
from opensesh.storage.locks import open_lock_file, try_lock_file
from opensesh.storage.opencode_db.store import OpencodeDB

from .faulty_server import FaultyServer, Json, PublishingSetup, run_faulty_server

FIXTURES = Path(__file__).parents[1] / "fixtures"
KEY = "sk-ant-api03-" + "a1B2c3D4" * 6


async def held(faulty_server: FaultyServer, url: str) -> list[ShareItem]:
    async with ShareServer(faulty_server.url) as server:
        return await server.data(url.rsplit("/", 1)[1])


async def test_what_is_shared_is_the_session_and_is_stored_as_opencode_stores_it(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk("Fix the parser")
    publishing.sample.write(
        ("session_diff", session["id"]), [{"file": "a.py", "before": "", "after": "x\n", "additions": 1}]
    )
    before = publishing.sessions.get(session["id"]).updated
    async with publishing.service() as service:
        shared = await service.share(session["id"])
    assert shared.is_new
    assert not shared.behind
    record = publishing.sessions.store.read(keys.share(session["id"]))
    assert list(record) == ["id", "url", "secret"]
    assert record["url"] == shared.url == f"{faulty_server.url}/share/{record['id']}"
    info = publishing.sessions.get(session["id"])
    assert info.document["share"] == {"url": shared.url}
    assert info.updated == before
    result = assemble(await held(faulty_server, shared.url))
    assert result is not None
    assert result.info == info.document
    assert result.messages == list(publishing.sessions.messages(session["id"]))
    assert result.diff == publishing.sessions.diff(session["id"])
    assert record["secret"] not in json.dumps([item.document for item in await held(faulty_server, shared.url)])


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "Mon, 21 Sep 2026 14:13:27 GMT", "date": "Mon, 21 Sep 2026 14:13:20 GMT"}, 7),
        ({"retry-after": "Mon, 21 Sep 2026 14:13:13 GMT", "date": "Mon, 21 Sep 2026 14:13:20 GMT"}, None),
        ({"retry-after": "later"}, None),
        ({}, None),
    ],
)
async def test_a_server_says_how_long_to_leave_it_alone(
    faulty_server: FaultyServer, headers: dict[str, str], wait: float | None
) -> None:
    faulty_server.faults.append((429, headers))
    async with ShareServer(faulty_server.url) as server:
        with pytest.raises(ShareError) as caught:
            await server.create("ses_1")
    assert caught.value.wait == wait


def test_no_clock_makes_a_client_wait_for_days() -> None:
    policy = RetryPolicy(initial_delay_ms=100, max_delay_ms=60_000)
    assert retry_delay_seconds(policy, 1, ShareError("busy", retryable=True, wait=9 * 86_400)) == 60


async def test_sharing_again_keeps_the_link_and_sends_only_what_is_new(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    async with publishing.service() as service:
        first = await service.share(session["id"])
        again = await service.share(session["id"])
        publishing.sample.prompt(session, "One more thing")
        more = await service.share(session["id"])
    assert first.url == again.url == more.url
    assert (first.sent, again.sent, more.sent) == (1 + 4 + 8, 0, 2)
    assert [method for method, path, _ in faulty_server.requests if path == "/api/share"] == ["POST"]


async def test_secrets_do_not_leave_and_are_counted(publishing: PublishingSetup, faulty_server: FaultyServer) -> None:
    session = publishing.sample.session("Deploy with " + KEY)
    publishing.sample.prompt(session, f"Use {KEY}, and my-very-own-password")
    answer = publishing.sample.answer(session, "ok")
    publishing.sample.tool(answer, input={"command": f"curl -H 'Authorization: Bearer {KEY}'"}, output=f"key={KEY}")
    publishing.sample.write(("session_diff", session["id"]), [{"file": ".env", "before": "", "after": f"KEY={KEY}\n"}])
    async with publishing.service(known_secrets=lambda: ["my-very-own-password"]) as service:
        shared = await service.share(session["id"])
    sent = json.dumps(faulty_server.requests)
    assert KEY not in sent
    assert "my-very-own-password" not in sent
    assert shared.redacted["anthropic-key"] >= 4
    assert shared.redacted["known-secret"] == 1
    assert KEY in json.dumps(publishing.sessions.get(session["id"]).document)


async def test_raw_must_be_asked_for_and_is_remembered_for_this_share(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk(KEY)
    async with publishing.service() as service:
        shared = await service.share(session["id"], redact=False)
        assert not shared.redacted
        publishing.sample.prompt(session, f"again {KEY}")
        await service.share(session["id"])
        assert f"again {KEY}" in json.dumps(faulty_server.syncs)
        await service.share(session["id"], redact=True)
    assert KEY not in json.dumps([item.document for item in await held(faulty_server, shared.url)])


async def test_the_secret_that_opencode_leaves_in_a_session_record_does_not_leave(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    share = {"id": "old", "url": "https://example.invalid/share/old", "secret": "hush-hush"}
    session = publishing.sample.session("auto", share=share)
    async with publishing.service() as service:
        await service.share(session["id"], redact=False)
    assert "hush-hush" not in json.dumps(faulty_server.syncs)


async def test_a_server_that_is_down_for_a_moment_is_asked_again(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    faulty_server.faults.extend([500, "drop", 429, 0.0, 503, 502, 0.0])
    async with publishing.service() as service:
        shared = await service.share(session["id"])
    assert not shared.behind
    assert len(await held(faulty_server, shared.url)) == 13


async def test_models_are_described_once_also_if_the_first_try_fails(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.session("models")
    for name in ("small", "large", "small"):
        publishing.sample.prompt(session, "Hello", model={"providerID": "acme", "modelID": name})
    faulty_server.faults.extend([0.0, 0.0, 503])

    def describe(provider: str, model: str) -> Json:
        return {"id": model, "of": provider}

    async with publishing.service(describe_model=describe) as service:
        shared = await service.share(session["id"])
        assert (await service.share(session["id"])).sent == 0
    listed = [item.data for item in await held(faulty_server, shared.url) if item.type == "model"]
    assert listed == [[{"id": "small", "of": "acme"}, {"id": "large", "of": "acme"}]]


async def test_changes_that_were_taken_back_are_shown_no_longer(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    publishing.sample.write(("session_diff", session["id"]), [{"file": "a.py", "before": "", "after": "regretted"}])
    async with publishing.service() as service:
        shared = await service.share(session["id"])
        assert "regretted" in str(await held(faulty_server, shared.url))
        publishing.sample.write(("session_diff", session["id"]), [])
        assert (await service.share(session["id"])).sent == 1
        assert (await service.share(session["id"])).sent == 0
    assert "regretted" not in str(await held(faulty_server, shared.url))


async def test_nothing_is_reported_as_shared_when_the_server_cannot_be_reached(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    await faulty_server.stop()
    async with publishing.service() as service:
        with pytest.raises(ShareError, match="cannot be reached"):
            await service.share(session["id"])
    assert "share" not in publishing.sessions.get(session["id"]).document
    assert list(share_records.list_all()) == []


async def test_a_share_that_is_behind_reports_that_and_catches_up(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    faulty_server.faults.extend([0.0, *[500] * 4])
    async with publishing.service() as service:
        shared = await service.share(session["id"])
        assert "500" in shared.behind
        assert [item.unsent for item in share_records.list_all()] == [True]
        again = await service.share(session["id"])
    assert (again.url, again.sent, again.behind) == (shared.url, 13, "")
    assert [item.unsent for item in share_records.list_all()] == [False]


async def test_a_slow_server_is_not_waited_for_forever(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    faulty_server.faults.extend([5.0] * 4)
    async with publishing.service(timeout=0.1) as service:
        with pytest.raises(ShareError, match="did not answer in time"):
            await service.share(session["id"])


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"<html>",
        b'{"id": "../x", "url": "https://x/share/x", "secret": "s"}',
        b'{"id": "x", "url": "javascript:alert(1)", "secret": "s"}',
        b'{"id": "x", "url": "https://x/share/x", "secret": ""}',
        b'{"id": 1, "url": 2, "secret": 3}',
    ],
)
async def test_an_answer_that_is_not_a_share_is_none(publishing: PublishingSetup, answer: bytes) -> None:
    from ..models.loopback import Exchange, serving

    async def say(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))

    session = publishing.sample.talk()
    async with serving(say) as server:
        publishing.terms = publishing.terms._replace(server=server.url)
        async with publishing.service() as service:
            with pytest.raises(ShareError, match=r"did not return"):
                await service.share(session["id"])
    assert "share" not in publishing.sessions.get(session["id"]).document


async def test_a_redirect_is_not_followed_with_a_secret(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    from ..models.loopback import Exchange, serving

    async def elsewhere(exchange: Exchange) -> None:
        await exchange.send(
            b"HTTP/1.1 307 Off\r\nlocation: %s\r\ncontent-length: 0\r\n\r\n" % f"{faulty_server.url}/".encode()
        )

    async with serving(elsewhere) as server:
        share = view({"id": "x" * 20, "url": f"{server.url}/share/{'x' * 20}", "secret": "s"}, Share)
        async with ShareServer(server.url) as there:
            with pytest.raises(ShareError, match="307"):
                await there.sync(share, [])
    assert faulty_server.requests == []


async def test_sharing_that_is_switched_off_sends_nothing(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    publishing.terms = publishing.terms._replace(disabled_by="OPENCODE_DISABLE_SHARE")
    async with publishing.service() as service:
        with pytest.raises(UsageError, match="OPENCODE_DISABLE_SHARE"):
            await service.share(session["id"])
    assert faulty_server.requests == []


async def test_a_session_that_cannot_be_marked_as_shared_is_not_shared(
    faulty_server: FaultyServer, publishing: PublishingSetup, tmp_path: Path
) -> None:
    database = shutil.copy(FIXTURES / "opencode-1.18.33" / "opencode.db", tmp_path)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("ALTER TABLE session ADD COLUMN later TEXT")
    with OpencodeDB(database) as store:
        publishing.sessions.store = store
        session = store.list(("session",))[0][-1]
        async with publishing.service() as service:
            with pytest.raises(ReadOnlyStoreError):
                await service.share(session)
    assert faulty_server.requests == []


async def test_two_do_not_share_one_session_at_the_same_time(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    lock = open_lock_file(os.path.join(paths.state(), "locks", "sharing", session["id"]))
    assert try_lock_file(lock)
    async with publishing.service() as service:
        with pytest.raises(BusyError):
            await service.share(session["id"])
        os.close(lock)
        assert (await service.share(session["id"])).is_new


async def test_what_is_too_large_for_the_server_stays_here_and_the_rest_goes(
    publishing: PublishingSetup, tmp_path: Path
) -> None:
    from opensesh.sharing.share_store import ShareLimits

    session = publishing.sample.talk(answers=20)
    publishing.sample.prompt(session, "x" * 200_000)
    async with run_faulty_server(tmp_path / "small", limits=ShareLimits(body=20_000)) as small:
        publishing.terms = publishing.terms._replace(server=small.url)
        async with publishing.service() as service:
            shared = await service.share(session["id"])
            assert len(shared.too_large) == 1
            assert shared.too_large[0].startswith("part/")
            assert len(await held(small, shared.url)) == 1 + 41 + 80


async def test_a_part_that_is_gone_here_is_blanked_there(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.session()
    prompt = publishing.sample.prompt(session, "my secret wish")
    async with publishing.service() as service:
        shared = await service.share(session["id"])
        publishing.sessions.remove_message(session["id"], prompt["id"])
        await service.share(session["id"])
        assert (await service.share(session["id"])).sent == 0
    assert "my secret wish" not in json.dumps([item.document for item in await held(faulty_server, shared.url)])


async def test_what_still_grows_waits_while_the_session_runs(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.session()
    answer = publishing.sample.answer(session, "done")
    growing = publishing.sample.part(answer, type="text", text="sk-ant-ap", time={"start": 1})
    async with publishing.service() as service:
        with leases_of(publishing.sessions.store).acquire(session["id"], "a test"):
            shared = await service.share(session["id"])
        assert growing["id"] not in json.dumps(faulty_server.syncs)
        await service.share(session["id"])
    assert growing["id"] in json.dumps([item.document for item in await held(faulty_server, shared.url)])


# -- taking back -------------------------------------------------------------------------------------------------------


async def test_taking_back_leaves_no_trace_here_or_there(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    path = publishing.sample.root / "session" / "proj" / f"{session['id']}.json"
    before = path.read_bytes()
    async with publishing.service() as service:
        shared = await service.share(session["id"])
        done = await service.unshare(session["id"])
        assert done.url == shared.url
        with pytest.raises(NotFoundError):
            await service.unshare(session["id"])
    with pytest.raises(ShareError) as gone:
        await held(faulty_server, shared.url)
    assert gone.value.is_gone
    assert path.read_bytes() == before
    assert not (publishing.sample.root / "session_share").exists() or not list(
        (publishing.sample.root / "session_share").iterdir()
    )
    assert list(share_records.list_all()) == list(revocations.waiting()) == []


async def test_a_removed_session_can_still_be_taken_back(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    async with publishing.service() as service:
        shared = await service.share(session["id"])
    publishing.sessions.purge(session["id"])
    assert [name for name, _ in revocations.waiting()] == [session["id"]]
    assert await held(faulty_server, shared.url)
    async with publishing.service() as service:
        assert [item.error for item in await service.retry()] == [""]
    with pytest.raises(ShareError):
        await held(faulty_server, shared.url)
    assert list(share_records.list_all()) == list(revocations.waiting()) == []


async def test_a_share_record_survives_the_removal_of_the_secret_in_the_store(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    async with publishing.service() as service:
        shared = await service.share(session["id"])
        publishing.sessions.store.remove(keys.share(session["id"]))
        for key in publishing.sessions.store.list(("session",)):
            publishing.sessions.store.remove(key)
        await service.unshare(session["id"])
    with pytest.raises(ShareError):
        await held(faulty_server, shared.url)


async def test_a_share_that_cannot_be_taken_down_now_waits_and_is_shared_no_further(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    async with publishing.service() as service:
        shared = await service.share(session["id"])
        await faulty_server.stop()
        with pytest.raises(ShareError):
            await service.unshare(session["id"])
        assert [share.url for _, share in revocations.waiting()] == [shared.url]
        assert [item.error != "" for item in await service.retry()] == [True]
        await faulty_server.start()
        assert [item.error for item in await service.retry()] == [""]
        assert await service.retry() == []
    assert "share" not in publishing.sessions.get(session["id"]).document


async def test_one_that_waits_to_go_is_gone_before_it_is_shared_again(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    async with publishing.service() as service:
        first = await service.share(session["id"])
        faulty_server.faults.extend([500] * 4)
        with pytest.raises(ShareError):
            await service.unshare(session["id"])
        second = await service.share(session["id"])
    assert first.url != second.url
    with pytest.raises(ShareError):
        await held(faulty_server, first.url)


async def test_the_secret_of_an_older_share_outlives_that_a_newer_one_cannot_be_taken_down(
    publishing: PublishingSetup, faulty_server: FaultyServer, tmp_path: Path
) -> None:
    session = publishing.sample.talk()
    async with run_faulty_server(tmp_path / "other") as other, publishing.service() as service:
        async with ShareServer(other.url) as server:
            older = await server.create(session["id"])
        revocations.note(session["id"], older, why="removed")
        async with ShareServer(faulty_server.url) as server:
            newer = await server.create(session["id"])
        publishing.sessions.store.write(keys.share(session["id"]), newer.document)
        await faulty_server.stop()
        with pytest.raises(ShareError, match="cannot be reached"):
            await service.unshare(session["id"])
        with pytest.raises(ShareError, match="404"):
            await held(other, older.url)
        assert [share.url for _, share in revocations.waiting()] == [newer.url]


async def test_what_waits_to_go_does_not_take_another_share_of_the_session_with_it(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    async with publishing.service() as service:
        shared = await service.share(session["id"])
        async with ShareServer(faulty_server.url) as server:
            older = await server.create(session["id"])
        revocations.note(session["id"], older, why="removed")
        assert [(item.url, item.error) for item in await service.retry()] == [(older.url, "")]
    assert await held(faulty_server, shared.url)
    assert list(revocations.waiting()) == []


async def test_a_share_that_is_gone_already_counts_as_taken_back(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    async with publishing.service() as service:
        await service.share(session["id"])
        run_faulty_server = next(share_records.list_all())
        async with ShareServer(faulty_server.url) as server:
            await server.remove(run_faulty_server.share, session["id"])
        await service.unshare(session["id"])
    assert list(revocations.waiting()) == []


async def test_a_server_that_only_says_it_took_a_share_down_is_not_believed(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()
    async with publishing.service() as service:
        await service.share(session["id"])
        faulty_server.faults.extend([200, 0.0] * 4)
        with pytest.raises(ShareError, match="still serves it"):
            await service.unshare(session["id"])
        assert len(list(revocations.waiting())) == 1
        await service.unshare(session["id"])


async def test_a_wrong_secret_takes_nothing_down(publishing: PublishingSetup, faulty_server: FaultyServer) -> None:
    session = publishing.sample.talk()
    async with publishing.service() as service:
        shared = await service.share(session["id"])
        record = publishing.sessions.store.read(keys.share(session["id"]))
        publishing.sessions.store.write(keys.share(session["id"]), record | {"secret": "guess"})
        note = next(share_records.list_all())
        share_records.delete(session["id"])
        with pytest.raises(ShareError, match="403"):
            await service.unshare(session["id"])
        assert await held(faulty_server, shared.url)
        share_records.save(note)
        await service.unshare(session["id"])  # which knows the right one
        assert list(revocations.waiting()) == []
    with pytest.raises(ShareError, match="404"):
        await held(faulty_server, shared.url)


def test_the_server_of_a_share_is_found_by_its_link() -> None:
    share = view({"id": "abc", "url": "https://share.example.org/base/share/abc", "secret": "s"}, Share)
    assert server_of(share, default="x") == "https://share.example.org/base"
    other = view({"id": "abc", "url": "https://example.org/s/abc", "secret": "s"}, Share)
    assert server_of(other, default="https://configured") == "https://configured"
    old = view({"url": "https://opencode.ai/s/abc", "secret": "s"}, Share)
    assert server_of(old, default="x") == "https://api.opencode.ai"


async def test_notes_can_be_read_by_their_owner_alone(publishing: PublishingSetup) -> None:
    session = publishing.sample.talk()
    async with publishing.service() as service:
        await service.share(session["id"])
    path = Path(paths.state()) / "shares" / f"{session['id']}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"{torn")
    assert share_records.find(session["id"]) is None
    assert list(share_records.list_all()) == []


async def test_what_opencode_shared_is_kept_up_to_date_by_its_record_alone(
    tmp_path: Path, faulty_server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    publishing = PublishingSetup(tmp_path / "opencode" / "storage", faulty_server.url)
    session = publishing.sample.talk()
    async with ShareServer(faulty_server.url) as server:
        share = await server.create(session["id"])
    publishing.sample.write(("session_share", session["id"]), share.document)
    async with publishing.service() as service:
        shared = await service.share(session["id"])
        assert (shared.url, shared.is_new, shared.behind) == (share.url, False, "")
        await service.unshare(session["id"])
