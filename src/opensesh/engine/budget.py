"""Costs of sessions, and budgets, which are checked before every request (steps, summaries, titles, subagents).

A request that is over budget is not sent. What a request will cost is not known beforehand, so the last one may exceed
the budget. Amounts are decimal US dollars. A model without a known price is never taken as free: a sum with such an
answer says so. A call counts for the session that made it, also if its answer was removed.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ..errors import ModelNotFoundError, OverBudgetError, UsageError
from ..history.stats.counted_calls import CountedCalls
from ..models import pricing
from ..models.connect import Connections
from ..models.stream_events import FinishStep, Usage
from ..records import as_amount, as_object
from .cancellation import run_in_thread_uncancellable
from .turn import closing_stream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable, Mapping

    from ..models.model import Model
    from ..models.request import Provider, Request
    from ..models.stream_events import StreamEvent
    from ..records import Document, Session
    from ..sessions import Sessions
    from .model_choice import Models

log = logging.getLogger("opensesh.engine")
BUDGET_VARIABLE = "OPENSESH_BUDGET"
"""Budget of a session where nothing else is set. It is not a key of the configuration file, which is shared with
OpenCode: that refuses a file with a key it does not know."""
_BUCKETS = ("input", "output", "reasoning", "cache_read", "cache_write")


class Budget(Struct, frozen=True, kw_only=True):
    """What may be spent. ``None`` means unlimited."""

    run: Decimal | None = None
    """By one run: from a prompt to its outcome, with the subagents it starts."""
    session: Decimal | None = None
    """By a session with its subagents, over its whole life."""
    task: Decimal | None = None
    """By one subagent, each time it is given a task."""
    unpriced: Literal["refuse", "warn"] = "refuse"
    """What to do about a model whose price is not known, so that the budget cannot be enforced."""

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return (self.run, self.session, self.task) != (None, None, None)


def parse_amount(text: str) -> Decimal:
    """Parse an amount in US dollars. Raises :class:`~opensesh.errors.UsageError`."""
    try:
        value = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value < 0:
        raise UsageError(f"{text!r} is not a valid amount; write a budget like 0.50")
    return value


def budget_from_environment(environ: Mapping[str, str]) -> Budget:
    """Return the budget that the environment sets."""
    value = environ.get(BUDGET_VARIABLE, "").strip()
    return Budget(session=parse_amount(value)) if value else Budget()


# -- costs -------------------------------------------------------------------------------------------------------------


class Spent(Struct, frozen=True, kw_only=True):
    """Cost and tokens of some answers."""

    known: Decimal = Decimal(0)
    """US dollars, of the answers that have a price."""
    unpriced: tuple[str, ...] = ()
    """The models among them whose price is not known, as ``provider/model``."""
    tokens: Usage = Usage()

    @property
    def cost(self) -> Decimal | None:
        """US dollars; ``None`` if the price of some of it is not known."""
        return None if self.unpriced else self.known

    def __add__(self, other: Spent) -> Spent:
        unpriced = tuple(dict.fromkeys((*self.unpriced, *other.unpriced)))
        return Spent(known=self.known + other.known, unpriced=unpriced, tokens=self.tokens + other.tokens)


class Costs(Struct, frozen=True, kw_only=True):
    """What one session cost."""

    own: Spent
    children: Spent
    """Those of its subagents, and of theirs."""

    @property
    def total(self) -> Spent:
        """Own cost and that of the subagents."""
        return self.own + self.children


class CostReport:
    """Computes costs from stored answers, and from the records of calls that led to none (titles)."""

    def __init__(self, sessions: Sessions, models: Models) -> None:
        self._sessions = sessions
        self._models = models

    def session(self, session_id: str) -> Costs:
        """Return the costs of a session."""
        calls = CountedCalls(self._sessions.store)
        children = [self._own(child, calls) for child in self._sessions.descendants(session_id)]
        return Costs(own=self._own(self._sessions.get(session_id), calls), children=sum(children, Spent()))

    def spent(self, answers: Iterable[Document]) -> Spent:
        """Return the sum of some answers."""
        known, tokens, unpriced = Decimal(0), Usage(), dict[str, None]()
        for info in answers:
            used = used_tokens(info)
            known += Decimal(repr(as_amount(info.get("cost"))))
            tokens += used
            provider_id, model_id = str(info.get("providerID")), str(info.get("modelID"))
            try:
                has_price = (
                    used == Usage() or pricing.cost(self._models.get(provider_id, model_id).price, used) is not None
                )
            except ModelNotFoundError:
                has_price = False
            if not has_price:
                unpriced[f"{provider_id}/{model_id}"] = None
        return Spent(known=known, unpriced=tuple(unpriced), tokens=tokens)

    def before_run(self, session_id: str) -> Spent:
        """Return what counts for the budget of a session: its whole tree, since a subagent's cost is its root's."""
        ancestors = self._sessions.ancestors(session_id)
        return self.session(ancestors[-1].id if ancestors else session_id).total

    def _own(self, session: Session, calls: CountedCalls) -> Spent:
        messages = (as_object(value) for _, value in self._sessions.store.scan(("message", session.id)))
        return self.spent(calls.of_session(session.document, filter(None, messages)))


def used_tokens(info: Document) -> Usage:
    """Return the tokens of an answer."""
    tokens = as_object(info.get("tokens")) or {}
    cache = as_object(tokens.get("cache")) or {}
    counts: dict[str, Any] = {**tokens, "cache_read": cache.get("read"), "cache_write": cache.get("write")}
    return Usage(**{name: int(counts.get(name) or 0) for name in _BUCKETS})


# -- enforcing a budget ------------------------------------------------------------------------------------------------


class Budgets:
    """Opens the accounts of runs and subagents under one budget."""

    def __init__(self, budget: Budget, costs: CostReport) -> None:
        self._budget = budget
        self._costs = costs

    @contextmanager
    def run(self, session_id: str) -> Generator[None]:
        """Charge all model calls made in this context, and in tasks started in it, to one run. A run within a run is
        charged to the outer one."""
        if not self._budget.is_set or _account.get() is not None:
            yield
            return
        with _charged_to(Account(self._budget, self._costs, session_id)):
            yield

    @contextmanager
    def subagent(self, session_id: str) -> Generator[None]:
        """Limit what a subagent spends in this context, and charge it to the run that started it."""
        parent = _account.get()
        if parent is None or self._budget.task is None:
            yield
            return
        with _charged_to(Account(self._budget, self._costs, session_id, parent)):
            yield


class Account:
    """What one run has spent, with its subagents; or one subagent, whose costs are its parent's too."""

    def __init__(self, budget: Budget, costs: CostReport, session_id: str, parent: Account | None = None) -> None:
        """With a ``parent``, only the budget for tasks is checked here."""
        self._budget = budget
        self._costs = costs
        self._session_id = session_id
        self._parent = parent
        self._spent = Decimal(0)
        self._before: Decimal | None = None
        self._warned: set[str] = set()

    @property
    def spent(self) -> Decimal:
        """US dollars spent so far."""
        return self._spent

    async def check(self, model: Model) -> None:
        """Raise :class:`~opensesh.errors.OverBudgetError` if no request may be sent to ``model``."""
        if self._parent is not None:
            await self._parent.check(model)
            if self._budget.task is not None:
                self._check_limit("task", self._spent, self._budget.task)
            return
        rates = model.price.rates if model.price is not None else None
        if rates is None or rates.input is None or rates.output is None:
            self._report_unpriced((model.ref,))
        if self._budget.session is not None:
            if self._before is None:
                before = await run_in_thread_uncancellable(self._costs.before_run, self._session_id)
                if before.unpriced:
                    self._report_unpriced(before.unpriced)
                # Another request of this run may have been quicker, and have been charged since.
                self._before = before.known if self._before is None else self._before
            self._check_limit("session", self._before + self._spent, self._budget.session)
        if self._budget.run is not None:
            self._check_limit("run", self._spent, self._budget.run)

    def charge(self, model: Model, usage: Usage) -> None:
        """Add the cost of a request that was answered."""
        self._spent += pricing.charge(model.price, usage).known
        if self._parent is not None:
            self._parent.charge(model, usage)

    def _check_limit(self, scope: Literal["run", "session", "task"], spent: Decimal, budget: Decimal) -> None:
        if spent >= budget:
            raise OverBudgetError(
                f"the budget of this {scope}, ${budget}, is used up: ${spent.normalize():f} are spent. Nothing more "
                "was sent. Raise the budget to continue.",
                scope=scope,
                spent=spent,
                budget=budget,
            )

    def _report_unpriced(self, models: tuple[str, ...]) -> None:
        names = ", ".join(models)
        if self._budget.unpriced == "warn":
            if names not in self._warned:
                self._warned.add(names)
                log.warning("the budget cannot be enforced: the price of %s is not known", names)
            return
        limits = {"run": self._budget.run, "session": self._budget.session, "task": self._budget.task}
        scope, budget = next((scope, limit) for scope, limit in limits.items() if limit is not None)
        raise OverBudgetError(
            f"the budget of this {scope}, ${budget}, cannot be enforced: the price of {names} is not known. Nothing "
            "was sent. Set the price in the configuration (provider.<id>.models.<id>.cost), or set no budget.",
            scope=scope,
            spent=self._spent,
            budget=budget,
        )


_account: ContextVar[Account | None] = ContextVar("account", default=None)


@contextmanager
def _charged_to(account: Account) -> Generator[None]:
    token = _account.set(account)
    try:
        yield
    finally:
        _account.reset(token)


class MeteredConnections(Connections):
    """Connections whose requests are charged to the account of the run that makes them."""

    def provider(self, model: Model) -> Provider:
        """Return the provider for ``model``."""
        return _MeteredProvider(super().provider(model))


class _MeteredProvider:
    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        """Check the budget, send the request, and charge what it cost."""
        account = _account.get()
        if account is not None:
            await account.check(request.model)
        async with closing_stream(self._provider.stream(request)) as events:
            async for event in events:
                if account is not None and isinstance(event, FinishStep):
                    account.charge(request.model, event.usage)
                yield event
