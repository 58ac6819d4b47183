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

from .stand import QUICK, Desk, Json, Stand, until


class Working:
    """A sharer at work, and what it told."""

    def __init__(self, sharer: ShareSync, service: ShareService, told: list[str]) -> None:
        self.sharer = sharer
        self.service = service
        self.told = told


@asynccontextmanager
async def working(desk: Desk, **options: Any) -> AsyncGenerator[Working]:
    told: list[str] = []
    given: Json = {"delay": 0.05, "retry": QUICK, "close_timeout": 2.0, "notify": told.append, **options}
    async with desk.service() as service, ShareSync(service, desk.bus, **given) as sharer:
        yield Working(sharer, service, told)


async def held(stand: Stand, url: str) -> list[ShareItem]:
    async with ShareServer(stand.url) as server:
        return await server.data(url.rsplit("/", 1)[1])


def say(desk: Desk, session: str, text: str, **more: Any) -> Json:
    info: Json = {"id": ids.ascending("msg"), "sessionID": session, "role": "user", "time": {"created": ids.now_ms()}}
    part: Json = {"id": ids.ascending("prt"), "sessionID": session, "messageID": info["id"], "type": "text"}
    desk.sessions.update_message(info)
    desk.sessions.update_part(part | {"text": text} | more)
    return part


async def test_many_changes_of_one_thing_are_sent_once_as_it_is_in_the_end(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    async with working(desk, delay=1.0) as work:
        await work.service.share(session)
        say(desk, session, "first")
        await until(lambda: "first" in json.dumps(stand.syncs))  # the sharer knows what the server has
        stand.requests.clear()
        for number in range(50):
            desk.sessions.rename(session, f"title {number}")
        part = say(desk, session, "draft")
        for number in range(20):
            desk.sessions.update_part(part | {"text": f"draft {number}"})
        await until(lambda: stand.syncs)
        await asyncio.sleep(1.2)
    [sent] = stand.syncs
    assert [each["type"] for each in sent] == ["session", "message", "part"]
    assert sent[0]["data"]["title"] == "title 49"
    assert sent[2]["data"]["text"] == "draft 19"


async def test_a_session_that_is_not_shared_is_not_sent(desk: Desk, stand: Stand) -> None:
    session = desk.sessions.create(title="mine").id
    async with working(desk):
        say(desk, session, "private")
        await asyncio.sleep(0.3)
    assert stand.requests == []


async def test_new_root_sessions_are_shared_if_the_terms_say_so(desk: Desk, stand: Stand) -> None:
    desk.terms = desk.terms._replace(mode="auto")
    async with working(desk) as work:
        root = desk.sessions.create(title="root")
        child = desk.sessions.create(title="child", parent_id=root.id)
        say(desk, root.id, "hello")
        say(desk, child.id, "inner")
        await until(lambda: work.told)
    url = desk.sessions.get(root.id).document["share"]["url"]
    assert work.told == [f"shared at {url}"]
    assert "share" not in desk.sessions.get(child.id).document
    found = assemble(await held(stand, url))
    assert found is not None
    assert [part["text"] for message in found.messages for part in message.parts] == ["hello"]
    assert found.info == desk.sessions.get(root.id).document


async def test_a_session_is_shared_on_request_and_its_link_is_reported(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    async with working(desk) as work:
        work.sharer.share(session)
    assert work.told == [f"shared at {desk.sessions.get(session).document['share']['url']}"]
    assert len(stand.syncs) == 1


async def test_the_end_waits_until_everything_is_sent(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    async with working(desk, delay=30.0) as work:
        shared = await work.service.share(session)
        say(desk, session, "the last word")
        stand.faults.extend([500, 0.2])
    assert "the last word" in json.dumps([item.document for item in await held(stand, shared.url)])
    assert work.told == []
    assert [each.unsent for each in share_records.list_all()] == [False]


async def test_what_could_not_be_sent_is_sent_by_the_next_sharer(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    async with working(desk, close_timeout=0.3) as work:
        shared = await work.service.share(session)
        await stand.stop()
        say(desk, session, "while the server was down")
    assert "not up to date" in work.told[-1]
    assert [each.unsent for each in share_records.list_all()] == [True]
    await stand.start()
    other = Desk(desk.sample.root, stand.url)
    async with working(other):
        pass
    assert "while the server was down" in json.dumps([item.document for item in await held(stand, shared.url)])
    assert [each.unsent for each in share_records.list_all()] == [False]


async def test_a_session_that_could_not_be_shared_before_the_end_is_reported(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    await stand.stop()
    async with working(desk, close_timeout=0.3) as work:
        work.sharer.share(session)
    assert work.told[-1] == f"{session} is not shared; retry with 'opensesh session share {session}'"


async def test_a_server_that_restarts_in_the_middle_misses_nothing(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    async with working(desk) as work:
        shared = await work.service.share(session)
        for number in range(12):
            say(desk, session, f"word {number}")
            if number == 4:
                await stand.stop()
            if number == 8:
                await stand.start()
            await asyncio.sleep(0.06)
    found = assemble(await held(stand, shared.url))
    assert found is not None
    assert found.messages == list(desk.sessions.messages(session))


async def test_a_process_that_died_with_a_full_queue_is_made_up_for(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    async with desk.service() as service:
        shared = await service.share(session)
    silent = Sessions(desk.sessions.store, desk.sessions.location, bus=Bus())  # whose changes are not published
    desk.sessions, heard = silent, desk.sessions
    say(desk, session, "unheard")
    desk.sessions = heard
    async with working(desk):
        say(desk, session, "heard")
    words = json.dumps([item.document for item in await held(stand, shared.url)])
    assert "unheard" in words


async def test_a_listener_that_missed_events_looks_after_every_share(desk: Desk, stand: Stand) -> None:
    desk.bus = Bus(keep=4)
    desk.sessions = Sessions(desk.sessions.store, desk.sessions.location, bus=desk.bus)
    session = desk.sample.talk()["id"]
    async with working(desk) as work:
        shared = await work.service.share(session)
        for number in range(30):
            say(desk, session, f"word {number}")
    found = assemble(await held(stand, shared.url))
    assert found is not None
    assert found.messages == list(desk.sessions.messages(session))


async def test_half_a_secret_does_not_leave(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    key = "sk-ant-api03-" + "Ab3" * 20
    async with working(desk) as work:
        await work.service.share(session)
        part = say(desk, session, key[:15], time={"start": 1})
        desk.sessions.update_part(part | {"text": key[:15], "time": {"start": 1}})
        await asyncio.sleep(0.2)
        desk.sessions.update_part(part | {"text": key, "time": {"start": 1, "end": 2}})
    assert key[:15] not in json.dumps(stand.syncs)
    assert "[redacted:anthropic-key]" in json.dumps(stand.syncs)


async def test_secrets_are_redacted_as_soon_as_it_is_requested(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    keys_said = ["-".join(("sk", "ant", "api03", name * 40)) for name in "ab"]
    async with desk.service() as another:
        await another.share(session, redact=False)
        async with working(desk):
            say(desk, session, keys_said[0])
            await until(lambda: keys_said[0] in json.dumps(stand.syncs))
            await another.share(session, redact=True)
            say(desk, session, f"again {keys_said[1]}")
            await until(lambda: "again" in json.dumps(stand.syncs))
    assert keys_said[1] not in json.dumps(stand.syncs)
    shown = str(await held(stand, next(share_records.list_all()).url))
    assert not any(key in shown for key in keys_said)


async def test_what_is_removed_while_it_is_shared_is_blanked(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    async with working(desk) as work:
        shared = await work.service.share(session)
        part = say(desk, session, "never mind")
        await until(lambda: "never mind" in json.dumps(stand.syncs))
        desk.sessions.remove_part(session, part["messageID"], part["id"])
    assert "never mind" not in json.dumps([item.document for item in await held(stand, shared.url)])


async def test_a_removed_session_is_taken_down(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    async with working(desk) as work:
        await work.service.share(session)
        desk.sessions.purge(session)
        await until(lambda: any(method == "DELETE" for method, _, _ in stand.requests))
        await until(lambda: not list(revocations.waiting()))


async def test_what_is_to_go_is_not_sent_to(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    async with desk.service() as service:
        await service.share(session)
        revocations.note(session, next(share_records.list_all()).share)
    stand.requests.clear()
    stand.faults.extend([500] * 50)
    async with working(desk):
        say(desk, session, "too late")
        await asyncio.sleep(0.2)
    assert stand.syncs == []


async def test_a_dead_server_of_old_shares_does_not_delay_a_run(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    async with desk.service() as service:
        await service.share(session)
    await stand.stop()
    desk.sessions.purge(session)
    began = asyncio.get_running_loop().time()
    async with working(desk, close_timeout=60.0):
        pass
    assert asyncio.get_running_loop().time() - began < 30
    assert len(list(revocations.waiting())) == 1


async def test_a_share_that_the_server_lost_is_reported_once(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    async with working(desk) as work:
        shared = await work.service.share(session)
        standing = next(share_records.list_all())
        async with ShareServer(stand.url) as server:
            await server.remove(standing.share, session)
        for _ in range(3):
            say(desk, session, "hello?")
            await asyncio.sleep(0.15)
    assert len(work.told) == 1
    assert "no longer has it" in work.told[0]
    assert desk.sessions.store.read(keys.share(session))["url"] == shared.url


async def test_a_session_shared_by_another_process_is_kept_up_to_date(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]
    async with working(desk):
        say(desk, session, "before")
        await asyncio.sleep(0.15)
        other = Desk(desk.sample.root, stand.url)
        async with other.service() as service:
            shared = await service.share(session)
        say(desk, session, "after")
    assert "after" in json.dumps([item.document for item in await held(stand, shared.url)])


async def test_sharing_that_fails_for_good_harms_nothing(desk: Desk, stand: Stand) -> None:
    desk.terms = desk.terms._replace(mode="auto", server=stand.url + "/nowhere")
    async with working(desk) as work:
        session = desk.sessions.create(title="x")
        say(desk, session.id, "hello")
    assert len(work.told) == 1
    assert "404" in work.told[0] or "no longer" in work.told[0]


async def test_leaving_with_an_error_does_not_wait(desk: Desk, stand: Stand) -> None:
    session = desk.sample.talk()["id"]

    async def broken_off() -> None:
        async with working(desk, close_timeout=90.0) as work:
            await work.service.share(session)
            stand.faults.extend([500] * 1000)
            say(desk, session, "x")
            await asyncio.sleep(0.2)
            raise RuntimeError("boom")

    began = asyncio.get_running_loop().time()
    with pytest.raises(RuntimeError, match="boom"):
        await broken_off()
    assert asyncio.get_running_loop().time() - began < 45
    assert [each.unsent for each in share_records.list_all()] == [True]
