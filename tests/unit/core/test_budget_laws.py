"""No schedule of reservations, settlements, crashes and lost commits spends more than a limit."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from worker.core.budget import Ask, Ledger, Limits, Plan, Reserved, Window

START = datetime(2026, 6, 1, 22, 50, tzinfo=UTC)
CENT = Decimal("0.01")
NOTHING = Decimal(0)
TENANTS = ("one", "two")
amounts = st.sampled_from([1, 50, 99, 100, 250, 333]).map(lambda cents: cents * CENT)
limit = st.sampled_from([None, None, 1_000, 1_000, 333]).map(lambda cents: None if cents is None else cents * CENT)


@dataclass(eq=False)
class Worker:
    ledger: Ledger
    alive: bool = True
    in_flight: list[tuple[Ask, Reserved]] = field(default_factory=list)
    planned: tuple[list[Ask], Plan] | None = None
    books_before: dict[Window, Decimal] = field(default_factory=dict)


class BudgetMachine(RuleBasedStateMachine):
    """`books` is what PostgreSQL holds; `owed` the truth: what was spent, or may still be, by workers dead or alive."""

    workers = Bundle("workers")

    @initialize(
        limits=st.builds(Limits, limit, limit, limit, limit),
        fraction=st.sampled_from([Decimal("0.02"), Decimal("0.5"), Decimal(1)]),
    )
    def begin(self, limits: Limits, fraction: Decimal) -> None:
        self.limits = limits
        self.fraction = fraction
        self.now = START
        self.started: list[Worker] = []
        self.books: dict[tuple[Window, Worker], Decimal] = {}
        self.owed: dict[Window, Decimal] = {}
        self.of_window: dict[Window, Decimal] = {}

    @precondition(lambda self: sum(worker.alive for worker in self.started) < 3)
    @rule(target=workers)
    def start(self) -> Worker:
        worker = Worker(Ledger(self.fraction))
        self.started.append(worker)
        return worker

    def ask(self, tenant: str, amount: Decimal) -> Ask:
        windows = self.limits.windows(tenant, self.now)
        self.of_window |= windows
        return Ask(windows, amount)

    def granted(self, worker: Worker, given: Ask, reserved: Reserved) -> None:
        worker.in_flight.append((given, reserved))
        for window in given.windows:
            self.owed[window] = self.owed.get(window, NOTHING) + given.amount_usd

    @rule(worker=workers, tenant=st.sampled_from(TENANTS), amount=amounts)
    def reserve_within_the_lease(self, worker: Worker, tenant: str, amount: Decimal) -> None:
        given = self.ask(tenant, amount)
        reserved = worker.ledger.reserve(given)
        if reserved is not None:
            self.granted(worker, given, reserved)

    @rule(worker=workers, wanted=st.lists(st.tuples(st.sampled_from(TENANTS), amounts), min_size=1, max_size=4))
    def plan(self, worker: Worker, wanted: list[tuple[str, Decimal]]) -> None:
        """The transaction writes what is planned, and has not ended; calls go on meanwhile."""
        if worker.planned is not None:
            return
        asks = [self.ask(tenant, amount) for tenant, amount in wanted]
        others: dict[Window, Decimal] = {}
        for (window, holder), held in self.books.items():
            if holder is not worker:
                others[window] = others.get(window, NOTHING) + held
        plan = worker.ledger.plan(asks, others)
        worker.books_before = {window: self.books.get((window, worker), NOTHING) for window in plan.held}
        self.books |= {(window, worker): held for window, held in plan.held.items()}
        worker.planned = (asks, plan)

    @rule(worker=workers, meanwhile=st.lists(st.tuples(st.sampled_from(TENANTS), amounts), max_size=3))
    def commit_is_known(self, worker: Worker, meanwhile: list[tuple[str, Decimal]]) -> None:
        if worker.planned is None:
            return
        for tenant, amount in meanwhile:
            self.reserve_within_the_lease(worker, tenant, amount)
        asks, plan = worker.planned
        for given, reserved in zip(asks, worker.ledger.apply(plan, asks), strict=True):
            if reserved is not None:
                self.granted(worker, given, reserved)
        worker.planned = None

    @rule(worker=workers)
    def commit_is_of_unknown_outcome(self, worker: Worker) -> None:
        """It took effect in the books, and the worker does not know."""
        if worker.planned is not None:
            worker.ledger.drop_plan()
            worker.planned = None

    @rule(worker=workers)
    def transaction_is_rolled_back(self, worker: Worker) -> None:
        if worker.planned is not None:
            worker.ledger.drop_plan()
            self.books |= {(window, worker): held for window, held in worker.books_before.items()}
            worker.planned = None

    @rule(worker=workers, part=st.fractions(0, 1), lost=st.booleans())
    def settle(self, worker: Worker, part: Fraction, lost: bool) -> None:
        if not worker.in_flight:
            return
        given, reserved = worker.in_flight.pop()
        cost = given.amount_usd if lost else (given.amount_usd * part.numerator / part.denominator).quantize(CENT)
        cost = min(cost, given.amount_usd)
        reserved.settle(None if lost else cost)
        for window in given.windows:
            self.owed[window] += cost - given.amount_usd

    @rule(worker=workers)
    def release(self, worker: Worker) -> None:
        if not worker.in_flight:
            return
        given, reserved = worker.in_flight.pop()
        reserved.release()
        for window in given.windows:
            self.owed[window] -= given.amount_usd

    @rule(worker=consumes(workers))
    def crash(self, worker: Worker) -> None:
        """Nobody knows what its calls in flight will cost: up to what they reserved, which stays owed."""
        worker.alive = False

    @rule(worker=consumes(workers))
    def leave(self, worker: Worker) -> None:
        if worker.planned is None:
            self.books |= {(window, worker): lease.held for window, lease in worker.ledger.given_back().items()}
        worker.alive = False

    @rule(minutes=st.integers(1, 90))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @rule(worker=workers)
    def forget(self, worker: Worker) -> None:
        if worker.planned is None:
            worker.ledger.forget_ended(self.now)

    @invariant()
    def no_limit_is_passed(self) -> None:
        for window, owed in getattr(self, "owed", {}).items():
            assert owed <= self.of_window[window], window

    @invariant()
    def the_books_lease_no_more_than_there_is(self) -> None:
        leased: dict[Window, Decimal] = {}
        for (window, _), held in getattr(self, "books", {}).items():
            leased[window] = leased.get(window, NOTHING) + held
        for window, held in leased.items():
            assert held <= self.of_window[window], window

    @invariant()
    def who_lives_has_spent_and_reserved_within_its_leases_and_these_are_in_the_books(self) -> None:
        for worker in getattr(self, "started", []):
            for window, lease in worker.ledger.leases.items() if worker.alive else ():
                assert lease.committed <= lease.held <= self.books.get((window, worker), NOTHING), window


BudgetMachine.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestNoScheduleSpendsPastALimit = BudgetMachine.TestCase
