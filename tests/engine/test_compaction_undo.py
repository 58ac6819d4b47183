from __future__ import annotations

import pytest

from opensesh.engine.compaction_undo import undo_compaction
from opensesh.engine.context_window import visible
from opensesh.errors import BusyError, UsageError
from opensesh.storage.leases import leases_of

from .test_compaction import Play


def window(play: Play) -> list[str]:
    return [message.info["id"] for message in visible(play.engine.sessions.messages(play.session))]


async def compacted(play: Play) -> list[str]:
    for prompt in ("first", "second"):
        await play.prompt(prompt)
    assert (await (await play.engine.compact(play.session))).kind == "answered"
    return window(play)


TALK = ("SAY one", "SAY two", "SAY the summary", "SAY three")


async def test_promise_3_a_redone_compaction_hides_what_it_hid_and_shows_what_came_since() -> None:
    async with Play(*TALK) as play:
        before = await compacted(play)
        records = play.engine.sessions.messages(play.session)
        assert await play.engine.undo_compaction(play.session)
        assert not await play.engine.undo_compaction(play.session)
        await play.prompt("third")
        assert await play.engine.redo_compaction(play.session)
        assert not await play.engine.redo_compaction(play.session)
        after = play.engine.sessions.messages(play.session)
        assert after[: len(records)] == records
        assert window(play) == [*before, *(message.info["id"] for message in after[len(records) :])]


async def test_compactions_are_redone_in_the_reverse_order() -> None:
    async with Play(*TALK, "SAY the second summary") as play:
        first = await compacted(play)
        await play.prompt("third")
        assert (await (await play.engine.compact(play.session))).kind == "answered"
        second = window(play)
        for _ in range(2):
            assert await play.engine.undo_compaction(play.session)
        assert await play.engine.redo_compaction(play.session)
        assert window(play)[: len(first)] == first
        assert await play.engine.redo_compaction(play.session)
        assert window(play) == second


async def test_a_compaction_is_not_redone_where_it_would_hide_the_wrong_messages() -> None:
    async with Play(*TALK) as play:
        await compacted(play)
        await play.engine.undo_compaction(play.session)
        first = play.engine.sessions.messages(play.session)[0].info["id"]
        play.engine.sessions.remove_message(play.session, first)
        with pytest.raises(UsageError, match=f"removed since: {first}"):
            await play.engine.redo_compaction(play.session)
    async with Play(*TALK[:3], "SAY another summary") as play:
        await compacted(play)
        await play.engine.undo_compaction(play.session)
        assert (await (await play.engine.compact(play.session))).kind == "answered"
        with pytest.raises(UsageError, match="compacted again since"):
            await play.engine.redo_compaction(play.session)


async def test_an_interrupted_undo_is_completed_by_the_next_one() -> None:
    async with Play(*TALK) as play:
        before = await compacted(play)
        request, summary = play.engine.sessions.messages(play.session)[-2:]
        assert undo_compaction(play.engine.sessions, play.session)
        play.engine.sessions.add_message(request)
        assert undo_compaction(play.engine.sessions, play.session)
        assert len(play.engine.sessions.messages(play.session)) == 4
        assert await play.engine.redo_compaction(play.session)
        assert window(play) == before
        assert summary in play.engine.sessions.messages(play.session)


async def test_a_compaction_of_a_session_that_is_being_run_is_neither_undone_nor_redone() -> None:
    async with Play(*TALK) as play:
        before = await compacted(play)
        with leases_of(play.engine.sessions.store).acquire(play.session, "another"), pytest.raises(BusyError):
            await play.engine.undo_compaction(play.session)
        assert window(play) == before
        await play.engine.undo_compaction(play.session)
        with leases_of(play.engine.sessions.store).acquire(play.session, "another"), pytest.raises(BusyError):
            await play.engine.redo_compaction(play.session)
