from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.config.rules import allowing, decide, matches, overlaps
from opensesh.errors import NotFoundError, PermissionCorrectedError, PermissionDeniedError, PermissionRejectedError
from opensesh.events import Event
from opensesh.permissions import Permissions, disabled, may_be_denied
from opensesh.records import Rule


def rule(permission: str, pattern: str, action: Any) -> Rule:
    return Rule(permission=permission, pattern=pattern, action=action)


class PermissionSetup:
    """Permissions with a user whose replies are prepared."""

    def __init__(self, **options: Any) -> None:
        self.events: list[Event] = []
        self.permissions = Permissions(self.events.append, **options)

    async def ask(
        self,
        *patterns: str,
        rules: Sequence[Rule] = (),
        always: Sequence[str] = (),
        session: str = "ses_1",
        permission: str = "bash",
    ) -> Sequence[Rule]:
        return await self.permissions.ask(
            session_id=session, permission=permission, patterns=patterns, rules=rules, always=always
        )

    async def asked(self, count: int = 1) -> list[str]:
        while len(self.permissions.pending) < count:
            await asyncio.sleep(0)
        return [request["id"] for request in self.permissions.pending]

    @property
    def published(self) -> list[str]:
        return [event.type for event in self.events]


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("ls", "ls *", "allow"),
        ("ls -la", "ls *", "allow"),
        ("lsof", "ls *", "ask"),
        ("/a/b/.env", "*.env", "allow"),
        ("a\nb", "a*", "allow"),
        ("LS", "ls", "ask"),
        ("a.c", "a?c", "allow"),
    ],
)
def test_a_pattern_decides_about_what_it_matches(text: str, pattern: str, expected: str) -> None:
    assert decide("bash", text, [rule("bash", pattern, "allow")]).action == expected


def test_a_rule_may_be_about_many_permissions() -> None:
    assert decide("mcp_x", "*", [rule("mcp_*", "*", "deny")]).action == "deny"
    assert decide("read", "x", [rule("*", "*", "allow")]).action == "allow"


def test_the_last_rule_that_matches_decides_across_all_lists() -> None:
    first = [rule("bash", "*", "allow"), rule("bash", "rm *", "deny")]
    second = [rule("bash", "rm -i *", "ask")]
    assert decide("bash", "rm x", first, second) == first[1]
    assert decide("bash", "rm -i x", first, second) == second[0]
    assert decide("bash", "ls", first, second) == first[0]
    assert decide("edit", "x", first, second).action == "ask"


rules = st.lists(
    st.builds(
        rule,
        st.sampled_from(["*", "bash", "edit"]),
        st.sampled_from(["*", "a*", "ab"]),
        st.sampled_from(["allow", "deny", "ask"]),
    ),
    max_size=6,
)


@given(rules, rules)
def test_lists_in_a_row_are_one_list(one: list[Rule], other: list[Rule]) -> None:
    assert decide("bash", "ab", one, other) == decide("bash", "ab", [*one, *other])


@given(rules)
def test_a_rule_for_everything_at_the_end_settles_it(before: list[Rule]) -> None:
    assert decide("bash", "ab", before, [rule("*", "*", "deny")]).action == "deny"


@given(rules, rules)
def test_the_allow_check_tells_what_needs_no_question(stated: list[Rule], approved: list[Rule]) -> None:
    allowed = allowing("bash", stated, approved)
    for subject in ("ab", "ac", "b"):
        forbidden = decide("bash", subject, stated).action == "deny"
        assert allowed(subject) == (not forbidden and decide("bash", subject, stated, approved).action == "allow")


def test_only_what_is_forbidden_altogether_is_disabled() -> None:
    assert disabled(["bash", "read"], [rule("bash", "*", "deny")]) == {"bash"}
    assert disabled(["bash"], [rule("bash", "*", "deny"), rule("bash", "git *", "allow")]) == set()
    assert disabled(["bash"], [rule("bash", "rm *", "deny")]) == set()
    assert disabled(["bash", "read"], [rule("*", "*", "deny"), rule("read", "*", "allow")]) == {"bash"}
    editing = ["edit", "write", "patch", "multiedit", "apply_patch"]
    assert disabled([*editing, "bash"], [rule("edit", "*", "deny")]) == set(editing)


def test_a_tool_whose_permission_has_another_name_can_be_switched_off_by_its_own() -> None:
    tools = ["read", "recall", "edit", "write"]
    assert disabled(tools, [rule("read", "*", "deny")]) == {"read", "recall"}
    assert disabled(tools, [rule("*", "*", "allow"), rule("recall", "*", "deny")]) == {"recall"}
    assert disabled(tools, [rule("write", "*", "deny")]) == {"write"}
    assert disabled(tools, [rule("recall", "*", "deny"), rule("*", "*", "allow")]) == set()


async def test_what_rules_allow_is_not_asked() -> None:
    setup = PermissionSetup()
    decided = await setup.ask("ls", "git log", rules=[rule("bash", "*", "allow")])
    assert decided == [rule("bash", "*", "allow")] * 2
    assert setup.events == []


async def test_a_deny_anywhere_is_found_before_anyone_is_asked() -> None:
    setup = PermissionSetup()
    with pytest.raises(PermissionDeniedError) as caught:
        await setup.ask("ls", "rm x", rules=[rule("read", "*", "allow"), rule("bash", "rm *", "deny")])
    assert setup.events == []
    assert caught.value.data["rules"] == [rule("bash", "rm *", "deny")]
    assert "rm x" in caught.value.message


async def test_a_request_waits_and_is_listed_until_it_is_answered() -> None:
    setup = PermissionSetup()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(
            setup.permissions.ask(
                session_id="ses_1",
                permission="bash",
                patterns=["ls"],
                rules=(),
                always=["ls *"],
                metadata={"a": 1, "b": None},
                tool={"messageID": "msg_1", "callID": "c"},
            )
        )
        (request_id,) = await setup.asked()
        assert setup.permissions.pending == [
            {
                "id": request_id,
                "sessionID": "ses_1",
                "permission": "bash",
                "patterns": ["ls"],
                "metadata": {"a": 1},
                "always": ["ls *"],
                "tool": {"messageID": "msg_1", "callID": "c"},
            }
        ]
        assert request_id.startswith("per_")
        assert not asking.done()
        setup.permissions.reply(request_id, "once")
    assert [decided.action for decided in asking.result()] == ["ask"]
    assert setup.permissions.pending == []
    assert setup.published == ["permission.asked", "permission.replied"]
    assert setup.events[1].properties == {"sessionID": "ses_1", "requestID": request_id, "reply": "once"}
    assert setup.permissions.approved == ()


async def test_always_lets_the_like_pass_from_then_on() -> None:
    setup = PermissionSetup()
    async with asyncio.TaskGroup() as group:
        group.create_task(setup.ask("git log", always=["git log *"]))
        alike = group.create_task(setup.ask("git log -1", always=["git log *"]))
        elsewhere = group.create_task(setup.ask("git log", session="ses_2"))
        other = group.create_task(setup.ask("git log", "rm x"))
        first, *_ = await setup.asked(4)
        setup.permissions.reply(first, "always")
        await alike
        assert not elsewhere.done()
        assert not other.done()
        for request_id in await setup.asked(2):
            setup.permissions.reply(request_id, "once")
    await setup.ask("git log --all", session="ses_3")
    assert setup.permissions.approved == (rule("bash", "git log *", "allow"),)


async def test_what_was_approved_is_known_next_time_but_undoes_no_rule() -> None:
    setup = PermissionSetup()
    async with asyncio.TaskGroup() as group:
        group.create_task(setup.ask("git status", always=["git *"]))
        [request_id] = await setup.asked()
        setup.permissions.reply(request_id, "always")
    await setup.ask("git log", rules=[rule("bash", "*", "ask")])
    with pytest.raises(PermissionDeniedError):
        await setup.ask("git push", rules=[rule("bash", "git push*", "deny")])


async def test_a_no_ends_everything_else_the_session_waits_for() -> None:
    setup = PermissionSetup()
    async with asyncio.TaskGroup() as group:
        mine = [group.create_task(settled(setup.ask(name))) for name in ("a", "b", "c")]
        elsewhere = group.create_task(setup.ask("d", session="ses_2"))
        requests = await setup.asked(4)
        setup.permissions.reply(requests[1], "reject")
        assert [type(await item) for item in mine] == [PermissionRejectedError] * 3
        assert not elsewhere.done()
        setup.permissions.reply(requests[3], "once")
    assert setup.published.count("permission.replied") == 4


async def test_a_no_with_a_word_corrects_the_one_and_ends_the_others() -> None:
    setup = PermissionSetup()
    async with asyncio.TaskGroup() as group:
        one, other = (group.create_task(settled(setup.ask(name))) for name in ("a", "b"))
        requests = await setup.asked(2)
        setup.permissions.reply(requests[0], "reject", "use b instead")
    corrected = one.result()
    assert isinstance(corrected, PermissionCorrectedError)
    assert "use b instead" in corrected.message
    assert type(other.result()) is PermissionRejectedError


async def settled(asking: Any) -> object:
    try:
        return await asking
    except PermissionRejectedError as error:
        return error
    except PermissionCorrectedError as error:
        return error


async def test_cancelling_withdraws_the_request() -> None:
    setup = PermissionSetup()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(setup.ask("a"))
        (request_id,) = await setup.asked()
        asking.cancel()
    assert setup.permissions.pending == []
    assert setup.published == ["permission.asked", "permission.replied"]
    with pytest.raises(NotFoundError):
        setup.permissions.reply(request_id, "once")


async def test_a_reply_to_an_unknown_request_fails() -> None:
    with pytest.raises(NotFoundError):
        PermissionSetup().permissions.reply("per_unknown", "once")


async def test_an_answer_counts_once() -> None:
    setup = PermissionSetup()
    async with asyncio.TaskGroup() as group:
        group.create_task(setup.ask("a"))
        (request_id,) = await setup.asked()
        setup.permissions.reply(request_id, "once")
        with pytest.raises(NotFoundError):
            setup.permissions.reply(request_id, "reject")


async def test_closing_refuses_those_who_wait_and_those_who_come() -> None:
    setup = PermissionSetup()
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(settled(setup.ask(name, session=name))) for name in ("a", "b")]
        await setup.asked(2)
        setup.permissions.close()
    assert [type(item.result()) for item in waiting] == [PermissionRejectedError] * 2
    with pytest.raises(PermissionRejectedError):
        await setup.ask("c")
    await setup.ask("c", rules=[rule("*", "*", "allow")])
    assert setup.permissions.pending == []


async def test_a_refusal_without_a_user_has_a_reason() -> None:
    setup = PermissionSetup()
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(settled(setup.ask(name))) for name in ("a", "b")]
        await setup.asked(2)
        setup.permissions.refuse(setup.permissions.pending[0]["id"], "the office is closed")
    for item, name in zip(waiting, "ab", strict=True):
        assert isinstance(item.result(), PermissionRejectedError)
        assert str(item.result()).endswith(f" was not allowed for {name}: the office is closed")
    with pytest.raises(NotFoundError):
        setup.permissions.refuse("per_gone", "the office is closed")


async def test_a_failed_publication_leaves_no_pending_request() -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("no one listens")

    permissions = Permissions(broken)
    with pytest.raises(RuntimeError):
        await permissions.ask(session_id="s", permission="bash", patterns=["x"], rules=())
    assert permissions.pending == []


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("git push", "git push", True),
        ("git push", "git pull", False),
        ("git *", "git push*", True),
        ("git * --force", "git push *", True),
        ("git p*", "git status*", False),
        ("git *", "git", False),
        ("git", "git *", True),
        ("rm *", "rm -rf *", True),
        ("a?c", "abc", True),
        ("*b", "a*", True),
        ("*b", "*c", False),
        ("a*b*c", "ab?", True),
        ("", "*", True),
    ],
)
def test_two_patterns_overlap_if_a_text_matches_both(one: str, other: str, expected: bool) -> None:
    assert overlaps(one, other) == expected


def test_two_patterns_overlap_exactly_if_a_short_text_matches_both() -> None:
    # What matches both is at most as long as both together.
    texts = ["".join(letters) for size in range(7) for letters in itertools.product("ab", repeat=size)]
    patterns = ["".join(letters) for size in range(4) for letters in itertools.product("ab*?", repeat=size)]
    matching = {pattern: {text for text in texts if matches(text, pattern)} for pattern in patterns}
    for one, other in itertools.product(patterns, repeat=2):
        assert overlaps(one, other) == bool(matching[one] & matching[other]), (one, other)


def test_two_long_patterns_are_compared_in_bounded_time() -> None:
    start = time.process_time()
    assert not overlaps("git *" + "a*" * 500 + "b", "git " + "*a" * 50 + "c")
    assert time.process_time() - start < 10


def test_what_a_request_may_hide_is_denied_or_asked_where_a_rule_has_an_exception() -> None:
    allow, ask, deny = rule("bash", "*", "allow"), rule("bash", "git push*", "ask"), rule("bash", "rm *", "deny")
    assert not may_be_denied("bash", ["uncertain: x"], ["x"], [allow])
    assert may_be_denied("bash", ["uncertain: x"], ["x"], [allow, deny])
    assert may_be_denied("bash", ["uncertain: x"], ["x"], [allow, ask])
    assert not may_be_denied("bash", ["uncertain: x"], ["x"], [deny, allow])
    assert not may_be_denied("bash", ["x"], [], [allow, deny])
    with pytest.raises(PermissionDeniedError):
        may_be_denied("bash", ["uncertain: x"], ["x", "rm x"], [allow, deny])
