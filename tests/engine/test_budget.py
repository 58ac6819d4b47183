from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from opensesh.engine.budget import Account, CostReport, budget_from_environment, parse_amount
from opensesh.engine.settings import Budget, Settings
from opensesh.errors import OverBudgetError, UsageError
from opensesh.models.anthropic_request import request_body
from opensesh.models.model import Limit, Model, Price, Rates
from opensesh.models.request import Assistant, Request, Text, User
from opensesh.records import BudgetExceededError, read_failure, side_calls
from opensesh.testing.scripted import ScriptedModel

from .harness import EngineHarness, echo, open_harness

# The scripted model costs 3 dollars a million tokens in, and 15 out.
ONE_CENT = "USAGE input=2000 output=267"


def steps(count: int) -> str:
    return "".join(f'CALL echo {{"number": {number}}}\n{ONE_CENT}\n---\n' for number in range(count))


def limited(**budget: Any) -> Settings:
    return Settings(budget=Budget(**budget))


def over(it: EngineHarness) -> BudgetExceededError:
    failure = read_failure(it.answers()[-1].info["error"])
    assert isinstance(failure, BudgetExceededError)
    return failure


async def test_a_run_ends_when_its_budget_is_used_up_and_nothing_more_is_sent() -> None:
    async with open_harness(steps(9) + "SAY done", settings=limited(run=Decimal("0.028")), tools=[echo()]) as it:
        outcome = await it.ask()
        assert outcome.kind == "failed"
        assert len(it.model.calls) == 3
        failure = over(it)
        assert (failure.scope, failure.spent, failure.budget) == ("run", 0.030015, 0.028)
        assert failure.message.startswith("the budget of this run, $0.028, is used up: $0.030015 are spent.")
        assert outcome.description == failure.message
        it.assert_sound()
        costs = await it.engine.cost(it.session)
        assert costs.total.cost == Decimal("0.030015")


async def test_the_next_run_has_a_budget_of_its_own() -> None:
    async with open_harness(
        steps(2) + f"SAY one\n{ONE_CENT}\n---\nSAY two", settings=limited(run=Decimal("0.02"))
    ) as it:
        assert (await it.ask()).kind == "failed"
        assert (await it.ask()).kind == "answered"


async def test_a_budget_that_is_enough_changes_nothing() -> None:
    async with open_harness(
        steps(1) + "SAY done", settings=limited(run=Decimal(1), session=Decimal(1)), tools=[echo()]
    ) as it:
        assert (await it.ask()).kind == "answered"


async def test_the_budget_of_a_session_counts_what_earlier_runs_spent() -> None:
    settings = limited(session=Decimal("0.0201"))
    async with open_harness(f"SAY one\n{ONE_CENT}\n---\nSAY two\n{ONE_CENT}\n---\nSAY never", settings=settings) as it:
        assert (await it.ask()).kind == "answered"
        assert (await it.ask()).kind == "answered"
        assert (await it.ask()).kind == "failed"
        assert over(it).scope == "session"
        assert len(it.model.calls) == 2


TASK = 'CALL task {"description": "Look", "prompt": "Look.", "subagent_type": "general"}\n'


async def test_subagents_are_paid_from_the_budget_of_the_run() -> None:
    child = ScriptedModel(steps(3) + "SAY found it")
    config = {"agent": {"general": {"model": "scripted/child"}}, "permission": "allow"}
    script = f"{TASK}{ONE_CENT}\n---\nSAY never"
    async with open_harness(
        script, settings=limited(run=Decimal("0.028")), config=config, tools=[echo()], child=child
    ) as it:
        outcome = await it.ask()
        assert outcome.kind == "failed"
        assert (len(it.model.calls), len(child.calls)) == (1, 2)
        (part,) = it.parts("tool")
        assert part["state"]["status"] == "error"
        assert "the budget of this run" in part["state"]["error"]
        costs = await it.engine.cost(it.session)
        assert (costs.own.cost, costs.children.cost) == (Decimal("0.010005"), Decimal("0.02001"))
        assert over(it).spent == 0.030015


async def test_titles_are_paid_from_it_too() -> None:
    script = f"SAY hello\n{ONE_CENT}\n---\nTITLE A greeting"
    async with open_harness(script, settings=limited(run=Decimal(0)), title=None) as it:
        assert (await it.ask()).kind == "failed"
    assert it.model.calls == ()
    assert it.model.title_calls == ()


async def test_the_cost_of_a_session_includes_its_title() -> None:
    script = f"SAY hello\n{ONE_CENT}\n---\nTITLE A greeting"
    async with open_harness(script, settings=limited(session=Decimal(1)), title=None) as it:
        await it.ask()
        (call,) = await it.until(lambda: side_calls(it.messages()[0].info))
        assert call["cost"] > 0
        answer = it.answers()[0].info
        costs = await it.engine.cost(it.session)
        assert costs.own.known == Decimal(repr(answer["cost"])) + Decimal(repr(call["cost"]))
        assert costs.own.tokens.input == answer["tokens"]["input"] + call["tokens"]["input"]


UNPRICED: dict[str, Any] = {
    "provider": {
        "own": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "x"},
            "models": {"big": {"name": "Big"}},
        }
    }
}


async def test_with_a_model_of_unknown_price_a_budget_cannot_be_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESH_TRUST_PLUGINS", "1")
    async with open_harness("SAY never", settings=limited(run=Decimal(1)), config=UNPRICED) as it:
        outcome = await it.ask("Go.", model="own/big")
        assert outcome.kind == "failed"
        assert "cannot be enforced: the price of own/big is not known. Nothing was sent." in over(it).message


async def test_or_it_is_only_warned_of(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESH_TRUST_PLUGINS", "1")
    settings = limited(run=Decimal(1), unpriced="warn")
    async with open_harness("SAY never", settings=settings, config=UNPRICED) as it:
        await it.submit("Go.", model="own/big")
        await it.until(lambda: "the budget cannot be enforced: the price of own/big is not known" in caplog.text)
        it.engine.abort(it.session)


async def test_the_environment_sets_the_budget_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESH_BUDGET", "0.02")
    async with open_harness("SAY one\nUSAGE input=4000 output=267\n---\nSAY never") as it:
        assert (await it.ask()).kind == "answered"
        assert (await it.ask()).kind == "failed"
        assert over(it).budget == 0.02


async def test_a_request_that_the_budget_does_not_pay_is_not_sent() -> None:
    async with open_harness("SAY never", settings=limited(run=Decimal("0.0001"))) as it:
        assert (await it.ask()).kind == "failed"
        assert it.model.calls == ()
        assert over(it).message.startswith("the budget of this run, $0.0001, does not pay the next request: $0 are")
        assert over(it).spent == 0


async def test_an_answer_is_limited_to_what_the_budget_still_pays() -> None:
    async with open_harness(steps(1) + "SAY done", settings=limited(run=Decimal("0.05")), tools=[echo()]) as it:
        assert (await it.ask()).kind == "answered"
        first, second = (call.request.max_output_tokens or 0 for call in it.model.calls)
        assert 1_000 < first < 0.05 / 15e-6
        assert 1_000 < second < 0.04 / 15e-6


async def test_a_budget_that_pays_the_longest_answer_leaves_the_request_as_it_is() -> None:
    async with open_harness("SAY done", settings=limited(run=Decimal(1))) as it:
        await it.ask()
        assert it.model.calls[0].request.max_output_tokens == 8_192


async def test_an_answer_that_the_budget_cut_off_is_not_taken_for_a_whole_one() -> None:
    async with open_harness("SAY half\nFINISH length", settings=limited(run=Decimal("0.05"))) as it:
        outcome = await it.ask()
        assert (outcome.kind, outcome.text) == ("failed", "half")
        assert outcome.description == "the budget of this run, $0.05, does not pay a longer answer: it was cut off."
    async with open_harness("SAY half\nFINISH length", settings=limited(run=Decimal(1))) as it:
        assert (await it.ask()).kind == "answered"


async def test_a_budget_that_the_provider_exceeds_is_reported_with_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with open_harness("SAY dear\nUSAGE input=100000 output=1000", settings=limited(run=Decimal("0.05"))) as it:
        outcome = await it.ask()
        assert (outcome.kind, outcome.text) == ("failed", "dear")
        assert outcome.description in caplog.text
        assert outcome.description.startswith("the budget of this run, $0.05, is exceeded: $0.315 are spent.")
        assert "error" not in it.answers()[-1].info


async def test_requests_at_the_same_time_share_what_is_left() -> None:
    child = ScriptedModel("\n---\n".join(f"SAY {word}\nWAIT 0.05" for word in ("one", "two", "three")))
    config = {"agent": {"general": {"model": "scripted/child"}}, "permission": "allow"}
    settings = limited(run=Decimal("0.1"), task=Decimal("0.09"))
    async with open_harness(f"{TASK * 3}---\nSAY all done", settings=settings, config=config, child=child) as it:
        assert (await it.ask()).kind == "answered"
        assert [part["state"]["status"] for part in it.parts("tool")] == ["completed"] * 3
        assert len(child.calls) == 3
        assert all((call.request.max_output_tokens or 0) <= 0.09 / 15e-6 for call in child.calls)


def claude(**fields: Any) -> Request:
    price = Price(rates=Rates(input=3, output=15, cache_read=0.3))
    model = Model(id="claude", provider_id="anthropic", price=price, limit=Limit(context=200_000, output=64_000))
    return Request(model=model, max_output_tokens=32_000, **fields)


async def sent(account: Account, request: Request) -> Request:
    async with account.reserve(request) as limited_request:
        return limited_request


def account_of(amount: str) -> Account:
    sessions: Any = None  # only the budget of a session reads what was spent before
    return Account(Budget(run=Decimal(amount)), CostReport(sessions, sessions), "ses_1")


async def test_what_was_sent_before_has_the_price_of_cached_input() -> None:
    long = User(content=(Text(text="word " * 80_000),))  # 100,000 tokens: $0.30, or $0.03 cached
    answer, question = Assistant(content=(Text(text="Yes."),)), User(content=(Text(text="And then?"),))
    assert await sent(account_of("0.10"), claude(messages=(long, answer, question)))
    with pytest.raises(OverBudgetError, match="about 100,000 tokens with a short answer cost"):
        await sent(account_of("0.10"), claude(messages=(long,)))


async def test_what_requests_in_progress_may_cost_is_reserved_for_them() -> None:
    account, request = account_of("1"), claude(messages=(User(content=(Text(text="Go."),)),))
    async with account.reserve(request) as first, account.reserve(request) as second, account.reserve(request) as third:
        assert first is second is request  # 48 cents each
        assert (third.max_output_tokens or 0) <= 0.04 / 15e-6
        order: list[str] = []
        waiting = asyncio.create_task(sent(account, request))
        waiting.add_done_callback(lambda _: order.append("the fourth is sent"))
        await asyncio.sleep(0.05)
        order.append("the three end")
    assert await waiting is request
    await asyncio.sleep(0)
    assert order == ["the three end", "the fourth is sent"]


async def test_thinking_is_part_of_what_the_budget_pays() -> None:
    thinking = {"thinking": {"type": "enabled", "budgetTokens": 16_000}}
    request = claude(messages=(User(content=(Text(text="Think."),)),), options=thinking)
    assert await sent(account_of("1"), request) is request
    shorter = await sent(account_of("0.3"), request)
    assert request_body(shorter)["max_tokens"] * 15e-6 <= 0.3
    assert request_body(shorter)["thinking"]["budget_tokens"] < 16_000
    shortest = request_body(await sent(account_of("0.01"), request))
    assert "thinking" not in shortest
    assert shortest["max_tokens"] * 15e-6 <= 0.01


def test_an_amount_is_what_people_write() -> None:
    assert parse_amount("$0.50") == parse_amount(" 0.5 ") == Decimal("0.5")
    assert budget_from_environment({"OPENSESH_BUDGET": " "}) == Budget()
    for wrong in ("much", "-1", "nan", "inf", ""):
        with pytest.raises(UsageError, match="is not a valid amount"):
            parse_amount(wrong)
