from __future__ import annotations

import random

import pytest

from ..cli.running import Terminal
from .test_money import agree, total

SCRIPTED = ("run", "--quiet", "-m", "scripted/prompt")


class _Walk:
    # Random prompts with budgets, forks and reverts. After each, every call counts once, for the session that made it.

    def __init__(self, terminal: Terminal, seed: int) -> None:
        self.terminal = terminal
        self.seed = seed
        self.random = random.Random(seed)
        self.spent: dict[str, float] = {}

    def prompt(self, *words: str) -> None:
        usage = f"USAGE input={self.random.choice((10, 3_000))} output={self.random.choice((1, 200))}"
        budget = self.random.choice((0.0001, 0.004, 0.02, 1.0))
        result = self.terminal.json(*SCRIPTED, *words, "--budget", str(budget), f"{usage}\nSAY answer")
        session, cost = result["sessionID"], result["cost"]
        if result["outcome"] == "answered":
            assert cost <= budget
        else:
            assert self.terminal.code == 1
            assert result["error"]["name"] == "BudgetExceededError"
            # Either the request was not sent, or the provider counted more than was estimated.
            assert result["error"]["data"].get("spent", 0) > budget or cost == 0
        self.spent[session] = self.spent.get(session, 0) + cost

    def step(self) -> str:
        session = self.random.choice(sorted(self.spent)) if self.spent else ""
        action = self.random.choice(("begin", "continue", "continue", "fork", "revert")) if session else "begin"
        match action:
            case "begin":
                self.prompt("--title", "T")
            case "continue":
                self.prompt("-s", session)
            case "fork":
                before = set(agree(self.terminal))
                self.terminal.run("session", "fork", session)
                [fork] = set(agree(self.terminal)) - before
                self.spent[fork] = 0
            case _:
                self.terminal.run("session", "revert", session, "--yes")
        return f"{action} {session}"

    def run(self, steps: int) -> None:
        done = [f"seed {self.seed}"]
        for _ in range(steps):
            done.append(self.step())
            assert agree(self.terminal) == pytest.approx(self.spent), done
            assert total(self.terminal) == pytest.approx(sum(self.spent.values())), done


def test_promise_4_every_call_counts_once_on_a_short_walk(terminal: Terminal) -> None:
    _Walk(terminal, seed=1).run(8)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("walk", range(6))
def test_promise_4_every_call_counts_once_and_no_budget_is_exceeded_on_walks(terminal: Terminal, walk: int) -> None:
    _Walk(terminal, seed=random.SystemRandom().getrandbits(32)).run(30)
