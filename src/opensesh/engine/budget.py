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
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ..errors import ModelNotFoundError, OverBudgetError, UsageError
from ..models import pricing
from ..models.connect import Connections
from ..models.stream_events import FinishStep, Usage
from ..records import as_object, side_calls
from .turn import closed_after

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable, Mapping

    from ..models.model import Model
    from ..models.request import Provider, Request
    from ..models.stream_events import StreamEvent
    from ..records import Document
    from .components import Runtime

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


BUCKETS = ("input", "output", "reasoning", "cache_read", "cache_write")


class Spent(Struct, frozen=True, kw_only=True):
    """A sum of answers."""

    known: Decimal = Decimal(0)
    """US dollars, of what has a price."""
    unpriced: tuple[str, ...] = ()
    """The models among them whose price is not known, as ``provider/model``."""
    tokens: Usage = Usage()

    @property
    def cost(self) -> Decimal | None:
        """US dollars; ``None`` if the price of some of it is not known."""
        return None if self.unpriced else self.known

    def __add__(self, other: Spent) -> Spent:
        both = {name: getattr(self.tokens, name) + getattr(other.tokens, name) for name in BUCKETS}
        unpriced = tuple(dict.fromkeys((*self.unpriced, *other.unpriced)))
        return Spent(known=self.known + other.known, unpriced=unpriced, tokens=Usage(**both))


class Costs(Struct, frozen=True, kw_only=True):
    """What one session cost."""

    own: Spent
    children: Spent
    """Those of its subagents, and of theirs."""

    @property
    def total(self) -> Spent:
        """Both."""
        return self.own + self.children


def costs(runtime: Runtime, session_id: str) -> Costs:
    """The costs of a session, as the store has them."""
    sessions = runtime.sessions
    below = [each.id for each in sessions.descendants(session_id)]
    return Costs(
        own=_session(runtime, session_id),
        children=sum((_session(runtime, each) for each in below), Spent()),
    )


def spent(answers: Iterable[Document], runtime: Runtime) -> Spent:
    """The sum of some answers."""
    known, unpriced = Decimal(0), dict[str, None]()
    tokens = dict.fromkeys(BUCKETS, 0)
    for info in answers:
        took = used(info)
        known += Decimal(repr(info.get("cost") or 0))
        tokens = {name: tokens[name] + took[name] for name in BUCKETS}
        if any(took.values()) and _is_unpriced(info, took, runtime):
            unpriced[f"{info.get('providerID')}/{info.get('modelID')}"] = None
    return Spent(known=known, unpriced=tuple(unpriced), tokens=Usage(**tokens))


def _session(runtime: Runtime, session_id: str) -> Spent:
    infos = [message.info for message in runtime.sessions.messages(session_id)]
    answers = [info for info in infos if info.get("role") == "assistant"]
    return spent([*answers, *(call for info in infos for call in side_calls(info))], runtime)


def _is_unpriced(info: Document, took: dict[str, int], runtime: Runtime) -> bool:
    try:
        model = runtime.model(str(info.get("providerID")), str(info.get("modelID")))
    except ModelNotFoundError:
        return True
    return pricing.cost(model.price, Usage(**took)) is None


def used(info: Document) -> dict[str, int]:
    """The tokens that an answer took, by bucket."""
    tokens = as_object(info.get("tokens")) or {}
    cache = as_object(tokens.get("cache")) or {}
    counts: dict[str, Any] = {**tokens, "cache_read": cache.get("read"), "cache_write": cache.get("write")}
    return {name: int(counts.get(name) or 0) for name in BUCKETS}
