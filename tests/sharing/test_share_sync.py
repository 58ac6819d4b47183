from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from opensesh import ids
from opensesh.bus import Bus
from opensesh.sessions import Sessions
from opensesh.sharing import share_records
from opensesh.sharing.client import ShareServer
from opensesh.sharing.items import ShareItem, assemble
from opensesh.sharing.share_service import ShareService
from opensesh.sharing.share_sync import ShareSync
from opensesh.storage import keys, revocations

from .faulty_server import QUICK, FaultyServer, Json, PublishingSetup, until


class Working:
    """A sharer at work, and what it told."""

    def __init__(self, sharer: ShareSync, service: ShareService, told: list[str]) -> None:
        self.sharer = sharer
        self.service = service
        self.published = told


@asynccontextmanager
async def working(publishing: PublishingSetup, **options: Any) -> AsyncGenerator[Working]:
    reported: list[str] = []
    arguments: Json = {"delay": 0.05, "retry": QUICK, "close_timeout": 2.0, "notify": reported.append, **options}
    async with publishing.service() as service, ShareSync(service, publishing.bus, **arguments) as sharer:
        yield Working(sharer, service, reported)


async def held(faulty_server: FaultyServer, url: str) -> list[ShareItem]:
    async with ShareServer(faulty_server.url) as server:
        return await server.data(url.rsplit("/", 1)[1])


def say(publishing: PublishingSetup, session: str, text: str, **more: Any) -> Json:
    info: Json = {"id": ids.ascending("msg"), "sessionID": session, "role": "user", "time": {"created": ids.now_ms()}}
    part: Json = {"id": ids.ascending("prt"), "sessionID": session, "messageID": info["id"], "type": "text"}
    publishing.sessions.update_message(info)
    publishing.sessions.update_part(part | {"text": text} | more)
    return part


async def test_many_changes_of_one_thing_are_sent_once_as_it_is_in_the_end(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()["id"]
    async with working(publishing, delay=1.0) as work:
        await work.service.share(session)
        say(publishing, session, "first")
        await until(lambda: "first" in json.dumps(faulty_server.syncs))  # the sharer knows what the server has
        faulty_server.requests.clear()
        for number in range(50):
            publishing.sessions.rename(session, f"title {number}")
        part = say(publishing, session, "draft")
        for number in range(20):
            publishing.sessions.update_part(part | {"text": f"draft {number}"})
        await until(lambda: faulty_server.syncs)
        await asyncio.sleep(1.2)
    [sent] = faulty_server.syncs
    assert [item["type"] for item in sent] == ["session", "message", "part"]
    assert sent[0]["data"]["title"] == "title 49"
    assert sent[2]["data"]["text"] == "draft 19"


async def test_a_session_that_is_not_shared_is_not_sent(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sessions.create(title="mine").id
    async with working(publishing):
        say(publishing, session, "private")
        await asyncio.sleep(0.3)
    assert faulty_server.requests == []


async def test_new_root_sessions_are_shared_if_the_terms_say_so(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    publishing.terms = publishing.terms._replace(mode="auto")
    async with working(publishing) as work:
        root = publishing.sessions.create(title="root")
        child = publishing.sessions.create(title="child", parent_id=root.id)
        say(publishing, root.id, "hello")
        say(publishing, child.id, "inner")
        await until(lambda: work.published)
    url = publishing.sessions.get(root.id).document["share"]["url"]
    assert work.published == [f"shared at {url}"]
    assert "share" not in publishing.sessions.get(child.id).document
    result = assemble(await held(faulty_server, url))
    assert result is not None
    assert [part["text"] for message in result.messages for part in message.parts] == ["hello"]
    assert result.info == publishing.sessions.get(root.id).document


async def test_a_session_is_shared_on_request_and_its_link_is_reported(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()["id"]
    async with working(publishing) as work:
        work.sharer.share(session)
    assert work.published == [f"shared at {publishing.sessions.get(session).document['share']['url']}"]
    assert len(faulty_server.syncs) == 1


async def test_the_end_waits_until_everything_is_sent(publishing: PublishingSetup, faulty_server: FaultyServer) -> None:
    session = publishing.sample.talk()["id"]
    async with working(publishing, delay=30.0) as work:
        shared = await work.service.share(session)
        say(publishing, session, "the last word")
        faulty_server.faults.extend([500, 0.2])
    assert "the last word" in json.dumps([item.document for item in await held(faulty_server, shared.url)])
    assert work.published == []
    assert [entry.unsent for entry in share_records.list_all()] == [False]


async def test_what_could_not_be_sent_is_sent_by_the_next_sharer(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()["id"]
    async with working(publishing, close_timeout=0.3) as work:
        shared = await work.service.share(session)
        await faulty_server.stop()
        say(publishing, session, "while the server was down")
    assert "not up to date" in work.published[-1]
    assert [entry.unsent for entry in share_records.list_all()] == [True]
    await faulty_server.start()
    other = PublishingSetup(publishing.sample.root, faulty_server.url)
    async with working(other):
        pass
    assert "while the server was down" in json.dumps([item.document for item in await held(faulty_server, shared.url)])
    assert [entry.unsent for entry in share_records.list_all()] == [False]


async def test_a_session_that_could_not_be_shared_before_the_end_is_reported(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()["id"]
    await faulty_server.stop()
    async with working(publishing, close_timeout=0.3) as work:
        work.sharer.share(session)
    assert work.published[-1] == f"{session} is not shared; retry with 'opensesh session share {session}'"


async def test_a_server_that_restarts_in_the_middle_misses_nothing(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()["id"]
    async with working(publishing) as work:
        shared = await work.service.share(session)
        for number in range(12):
            say(publishing, session, f"word {number}")
            if number == 4:
                await faulty_server.stop()
            if number == 8:
                await faulty_server.start()
            await asyncio.sleep(0.06)
    result = assemble(await held(faulty_server, shared.url))
    assert result is not None
    assert result.messages == list(publishing.sessions.messages(session))


async def test_a_process_that_died_with_a_full_queue_is_made_up_for(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()["id"]
    async with publishing.service() as service:
        shared = await service.share(session)
    silent = Sessions(
        publishing.sessions.store, publishing.sessions.location, bus=Bus()
    )  # whose changes are not published
    publishing.sessions, received = silent, publishing.sessions
    say(publishing, session, "unheard")
    publishing.sessions = received
    async with working(publishing):
        say(publishing, session, "heard")
    words = json.dumps([item.document for item in await held(faulty_server, shared.url)])
    assert "unheard" in words


async def test_a_listener_that_missed_events_looks_after_every_share(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    publishing.bus = Bus(keep=4)
    publishing.sessions = Sessions(publishing.sessions.store, publishing.sessions.location, bus=publishing.bus)
    session = publishing.sample.talk()["id"]
    async with working(publishing) as work:
        shared = await work.service.share(session)
        for number in range(30):
            say(publishing, session, f"word {number}")
    result = assemble(await held(faulty_server, shared.url))
    assert result is not None
    assert result.messages == list(publishing.sessions.messages(session))


async def test_half_a_secret_does_not_leave(publishing: PublishingSetup, faulty_server: FaultyServer) -> None:
    session = publishing.sample.talk()["id"]
    key = "sk-ant-api03-" + "Ab3" * 20
    async with working(publishing) as work:
        await work.service.share(session)
        part = say(publishing, session, key[:15], time={"start": 1})
        publishing.sessions.update_part(part | {"text": key[:15], "time": {"start": 1}})
        await asyncio.sleep(0.2)
        publishing.sessions.update_part(part | {"text": key, "time": {"start": 1, "end": 2}})
    assert key[:15] not in json.dumps(faulty_server.syncs)
    assert "[redacted:anthropic-key]" in json.dumps(faulty_server.syncs)


async def test_secrets_are_redacted_as_soon_as_it_is_requested(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()["id"]
    keys_said = ["-".join(("sk", "ant", "api03", name * 40)) for name in "ab"]
    async with publishing.service() as another:
        await another.share(session, redact=False)
        async with working(publishing):
            say(publishing, session, keys_said[0])
            await until(lambda: keys_said[0] in json.dumps(faulty_server.syncs))
            await another.share(session, redact=True)
            say(publishing, session, f"again {keys_said[1]}")
            await until(lambda: "again" in json.dumps(faulty_server.syncs))
    assert keys_said[1] not in json.dumps(faulty_server.syncs)
    shown = str(await held(faulty_server, next(share_records.list_all()).url))
    assert not any(key in shown for key in keys_said)


async def test_what_is_removed_while_it_is_shared_is_blanked(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()["id"]
    async with working(publishing) as work:
        shared = await work.service.share(session)
        part = say(publishing, session, "never mind")
        await until(lambda: "never mind" in json.dumps(faulty_server.syncs))
        publishing.sessions.remove_part(session, part["messageID"], part["id"])
    assert "never mind" not in json.dumps([item.document for item in await held(faulty_server, shared.url)])


async def test_a_removed_session_is_taken_down(publishing: PublishingSetup, faulty_server: FaultyServer) -> None:
    session = publishing.sample.talk()["id"]
    async with working(publishing) as work:
        await work.service.share(session)
        publishing.sessions.purge(session)
        await until(lambda: any(method == "DELETE" for method, _, _ in faulty_server.requests))
        await until(lambda: not list(revocations.waiting()))


async def test_what_is_to_go_is_not_sent_to(publishing: PublishingSetup, faulty_server: FaultyServer) -> None:
    session = publishing.sample.talk()["id"]
    async with publishing.service() as service:
        await service.share(session)
        revocations.note(session, next(share_records.list_all()).share)
    faulty_server.requests.clear()
    faulty_server.faults.extend([500] * 50)
    async with working(publishing):
        say(publishing, session, "too late")
        await asyncio.sleep(0.2)
    assert faulty_server.syncs == []


async def test_a_dead_server_of_old_shares_does_not_delay_a_run(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()["id"]
    async with publishing.service() as service:
        await service.share(session)
    await faulty_server.stop()
    publishing.sessions.purge(session)
    began = asyncio.get_running_loop().time()
    async with working(publishing, close_timeout=60.0):
        pass
    assert asyncio.get_running_loop().time() - began < 30
    assert len(list(revocations.waiting())) == 1


async def test_a_share_that_the_server_lost_is_reported_once(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()["id"]
    async with working(publishing) as work:
        shared = await work.service.share(session)
        run_faulty_server = next(share_records.list_all())
        async with ShareServer(faulty_server.url) as server:
            await server.remove(run_faulty_server.share, session)
        for _ in range(3):
            say(publishing, session, "hello?")
            await asyncio.sleep(0.15)
    assert len(work.published) == 1
    assert "no longer has it" in work.published[0]
    assert publishing.sessions.store.read(keys.share(session))["url"] == shared.url


async def test_a_session_shared_by_another_process_is_kept_up_to_date(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = publishing.sample.talk()["id"]
    async with working(publishing):
        say(publishing, session, "before")
        await asyncio.sleep(0.15)
        other = PublishingSetup(publishing.sample.root, faulty_server.url)
        async with other.service() as service:
            shared = await service.share(session)
        say(publishing, session, "after")
    assert "after" in json.dumps([item.document for item in await held(faulty_server, shared.url)])


async def test_sharing_that_fails_for_good_harms_nothing(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    publishing.terms = publishing.terms._replace(mode="auto", server=faulty_server.url + "/nowhere")
    async with working(publishing) as work:
        session = publishing.sessions.create(title="x")
        say(publishing, session.id, "hello")
    assert len(work.published) == 1
    assert "404" in work.published[0] or "no longer" in work.published[0]


async def test_leaving_with_an_error_does_not_wait(publishing: PublishingSetup, faulty_server: FaultyServer) -> None:
    session = publishing.sample.talk()["id"]

    async def broken_off() -> None:
        async with working(publishing, close_timeout=90.0) as work:
            await work.service.share(session)
            faulty_server.faults.extend([500] * 1000)
            say(publishing, session, "x")
            await asyncio.sleep(0.2)
            raise RuntimeError("boom")

    began = asyncio.get_running_loop().time()
    with pytest.raises(RuntimeError, match="boom"):
        await broken_off()
    assert asyncio.get_running_loop().time() - began < 45
    assert [item.unsent for item in share_records.list_all()] == [True]
