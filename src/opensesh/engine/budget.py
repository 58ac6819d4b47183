"""How much may be spent: looked at before every request, whoever makes it (steps, summaries, titles, subagents).

What is over its budget is not sent. The request that crosses the line is not known beforehand and goes through, so the
last one may overshoot. Amounts are decimal, and are US dollars.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from ..errors import OverBudgetError, UsageError
from ..models import pricing
from ..models.connect import Connections
from ..models.stream_events import FinishStep
from .turn import closed_after

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping

    from ..models.model import Model
    from ..models.request import Provider, Request
    from ..models.stream_events import StreamEvent, Usage
    from .runtime import Runtime

log = logging.getLogger("opensesh.engine")
VARIABLE = "OPENSESH_BUDGET"
"""What a session may cost, for whoever sets nothing else. It is not a key of the configuration file: that is shared
with OpenCode, which refuses a file with a key it does not know."""


class Budget(Struct, frozen=True, kw_only=True):
    """What may be spent. ``None`` is no limit."""

    run: Decimal | None = None
    """By one run: from a prompt to its outcome, with the subagents it starts."""
    session: Decimal | None = None
    """By a session with its subagents, in all its life."""
    task: Decimal | None = None
    """By one subagent, each time it is given work."""
    unpriced: Literal["refuse", "warn"] = "refuse"
    """What to do about a model whose price nobody knows: a budget cannot be held with it."""

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return any(limit is not None for limit in (self.run, self.session, self.task))


def amount(text: str) -> Decimal:
    """Dollars, as someone typed them."""
    try:
        value = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value < 0:
        raise UsageError(f"{text!r} is no amount of money; a budget is written like 0.50")
    return value


def from_environment(environ: Mapping[str, str]) -> Budget:
    """The budget that the environment sets."""
    said = environ.get(VARIABLE, "").strip()
    return Budget(session=amount(said)) if said else Budget()


class Account:
    """What one run has spent, subagents included; or one subagent, on the account of whoever gave it work."""

    def __init__(self, budget: Budget, runtime: Runtime, session_id: str, payer: Account | None = None) -> None:
        """With a ``payer``, only the budget for tasks is this account's own."""
        self._budget = budget
        self._payer = payer
        self._runtime = runtime
        self._session_id = session_id
        self._spent = Decimal(0)
        self._before: Decimal | None = None
        self._warned: set[str] = set()

    @property
    def spent(self) -> Decimal:
        """By the run so far."""
        return self._spent

    async def check(self, model: Model) -> None:
        """Return if ``model`` may be asked; otherwise raise :class:`~opensesh.errors.OverBudgetError`."""
        if self._payer is not None:
            await self._payer.check(model)
            if self._budget.task is not None:
                self._hold("task", self._spent, self._budget.task)
            return
        rates = model.price.rates if model.price is not None else None
        if rates is None or rates.input is None or rates.output is None:
            self._object((model.ref,))
        if self._budget.session is not None:
            if self._before is None:
                stored = await asyncio.to_thread(self._stored)
                # Whoever asked at the same time and was quicker may have spent something by now.
                self._before = stored if self._before is None else self._before
            self._hold("session", self._before + self._spent, self._budget.session)
        if self._budget.run is not None:
            self._hold("run", self._spent, self._budget.run)

    def charge(self, model: Model, usage: Usage) -> None:
        """A request was answered."""
        self._spent += pricing.charge(model.price, usage).known
        if self._payer is not None:
            self._payer.charge(model, usage)

    def _stored(self) -> Decimal:
        """What the session had cost before this run; that of a subagent counts as its root's."""
        from .costs import costs

        above = self._runtime.sessions.ancestors(self._session_id)
        total = costs(self._runtime, above[-1].id if above else self._session_id).total
        if total.unpriced:
            self._object(total.unpriced)
        return total.known

    def _hold(self, scope: Literal["run", "session", "task"], spent: Decimal, budget: Decimal) -> None:
        if spent >= budget:
            raise OverBudgetError(
                f"the budget of this {scope}, ${budget}, is used up: ${spent.normalize():f} are spent. Nothing more "
                "was sent. Raise the budget to go on.",
                scope=scope,
                spent=spent,
                budget=budget,
            )

    def _object(self, models: tuple[str, ...]) -> None:
        """A price that is not known stands against every budget."""
        listed = ", ".join(models)
        if self._budget.unpriced == "warn":
            if listed not in self._warned:
                self._warned.add(listed)
                log.warning("the budget cannot be held: the price of %s is not known", listed)
            return
        limits = {"run": self._budget.run, "session": self._budget.session, "task": self._budget.task}
        scope, budget = next((scope, limit) for scope, limit in limits.items() if limit is not None)
        raise OverBudgetError(
            f"the budget of this {scope}, ${budget}, cannot be held: the price of {listed} is not known. Nothing was "
            "sent. Give the model a price in the configuration (provider.<id>.models.<id>.cost), or set no budget.",
            scope=scope,
            spent=self._spent,
            budget=budget,
        )


_account: ContextVar[Account | None] = ContextVar("account", default=None)


@contextmanager
def accounting(runtime: Runtime, session_id: str) -> Generator[None]:
    """All that is asked of models in here, and in tasks that begin in here, is one run's; a run within a run is not
    another."""
    if not runtime.budget.is_set or _account.get() is not None:
        yield
        return
    with _charged(Account(runtime.budget, runtime, session_id)):
        yield


@contextmanager
def accounting_task(runtime: Runtime, session_id: str) -> Generator[None]:
    """What a subagent spends in here is limited by itself, and charged to the run that gave it the work."""
    payer = _account.get()
    if payer is None or runtime.budget.task is None:
        yield
        return
    with _charged(Account(runtime.budget, runtime, session_id, payer)):
        yield


@contextmanager
def _charged(account: Account) -> Generator[None]:
    token = _account.set(account)
    try:
        yield
    finally:
        _account.reset(token)


class PaidConnections(Connections):
    """Connections that are paid for."""

    def provider(self, model: Model) -> Provider:
        """What to ask for ``model``, as long as there is money."""
        return Metered(super().provider(model))


class Metered:
    """A provider whose requests are paid from the account of the run that makes them."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        """Look at the budget, ask, and note what it cost."""
        account = _account.get()
        if account is not None:
            await account.check(request.model)
        async with closed_after(self._provider.stream(request)) as events:
            async for event in events:
                if account is not None and isinstance(event, FinishStep):
                    account.charge(request.model, event.usage)
                yield event
