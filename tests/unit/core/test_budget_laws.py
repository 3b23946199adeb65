"""No schedule of reservations, settlements, crashes and lost commits spends more than a limit."""

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from worker.core.budget import Ask, Ledger, Limits, Plan, Reserved, Window

START = datetime(2026, 6, 1, 22, 50, tzinfo=UTC)
CENT = Decimal("0.01")
NOTHING = Decimal(0)
AMOUNTS_CENTS = (1, 50, 99, 100, 250, 333)
LIMITS_CENTS = (None, None, 0, 333, 1_000, 2_000)
WORKERS_MAX = 3
SCHEDULES = 1_000
STEPS = 100


@dataclass(eq=False)
class Worker:
    ledger: Ledger
    in_flight: list[tuple[Ask, Reserved]] = field(default_factory=list)
    planned: tuple[list[Ask], Plan, dict[Window, Decimal]] | None = None


class Schedule:
    """`books` is what PostgreSQL holds; `owed` the truth: what was spent, or may still be, by workers dead or alive."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.limits = Limits(*(None if cents is None else cents * CENT for cents in self.picks(LIMITS_CENTS, 4)))
        self.fraction = self.chance.choice([Decimal("0.02"), Decimal("0.5"), Decimal(1)])
        self.now = START
        self.workers: list[Worker] = []
        self.books: dict[tuple[Window, Worker], Decimal] = {}
        self.owed: dict[Window, Decimal] = {}
        self.of_window: dict[Window, Decimal] = {}
        self.happened: Counter[str] = Counter()

    def picks(self, of: tuple[int | None, ...], times: int) -> list[int | None]:
        return [self.chance.choice(of) for _ in range(times)]

    def step(self) -> None:
        if len(self.workers) < WORKERS_MAX and self.chance.random() < 0.2:
            self.workers.append(Worker(Ledger(self.fraction)))
            return
        if not self.workers:
            return
        worker = self.chance.choice(self.workers)
        ending = (self.commit, self.commit, self.commit_unseen, self.roll_back)
        among = (self.reserve, *ending) if worker.planned else (self.reserve, self.settle, self.plan, self.plan)
        seldom = (self.release, self.lose, self.crash, self.leave, self.pass_time, self.forget)
        action = self.chance.choice(seldom if self.chance.random() < 0.15 else among)
        self.happened[action.__name__] += 1
        action(worker)

    def ask(self) -> Ask:
        windows = self.limits.windows(self.chance.choice(("one", "two")), self.now)
        self.of_window |= windows
        return Ask(windows, self.chance.choice(AMOUNTS_CENTS) * CENT)

    def granted(self, worker: Worker, given: Ask, reserved: Reserved) -> None:
        worker.in_flight.append((given, reserved))
        self.owe(given, given.amount_usd)

    def owe(self, given: Ask, amount: Decimal) -> None:
        for window in given.windows:
            self.owed[window] = self.owed.get(window, NOTHING) + amount

    def reserve(self, worker: Worker) -> None:
        given = self.ask()
        reserved = worker.ledger.reserve(given)
        if reserved is not None:
            self.granted(worker, given, reserved)

    def plan(self, worker: Worker) -> None:
        """The transaction writes what is planned, and has not ended; calls go on meanwhile, other plans wait for it."""
        if any(other.planned for other in self.workers):
            return
        asks = [self.ask() for _ in range(self.chance.randint(1, 4))]
        others: dict[Window, Decimal] = {}
        for (window, holder), held in self.books.items():
            if holder is not worker:
                others[window] = others.get(window, NOTHING) + held
        plan = worker.ledger.plan(asks, others)
        before = {window: self.books.get((window, worker), NOTHING) for window in plan.held}
        self.books |= {(window, worker): held for window, held in plan.held.items()}
        worker.planned = (asks, plan, before)

    def commit(self, worker: Worker) -> None:
        asks, plan, _ = worker.planned or ([], Plan(), {})
        for given, reserved in zip(asks, worker.ledger.apply(plan, asks), strict=True):
            if reserved is not None:
                self.granted(worker, given, reserved)
        worker.planned = None

    def commit_unseen(self, worker: Worker) -> None:
        """It took effect in the books, and the worker does not know."""
        worker.ledger.drop_plan()
        worker.planned = None

    def roll_back(self, worker: Worker) -> None:
        _, _, before = worker.planned or ([], Plan(), {})
        self.books |= {(window, worker): held for window, held in before.items()}
        self.commit_unseen(worker)

    def settle(self, worker: Worker) -> None:
        if worker.in_flight:
            given, reserved = worker.in_flight.pop(self.chance.randrange(len(worker.in_flight)))
            cost = self.chance.randint(0, int(given.amount_usd / CENT)) * CENT
            reserved.settle(cost)
            self.owe(given, cost - given.amount_usd)

    def release(self, worker: Worker) -> None:
        if worker.in_flight:
            given, reserved = worker.in_flight.pop()
            reserved.release()
            self.owe(given, -given.amount_usd)

    def lose(self, worker: Worker) -> None:
        """A response never came: nobody knows what it cost, up to what was reserved."""
        if worker.in_flight:
            worker.in_flight.pop()[1].settle(None)

    def crash(self, worker: Worker) -> None:
        """What its calls in flight will cost, up to what they reserved, stays owed; its transaction ends either way."""
        self.chance.choice((self.commit_unseen, self.roll_back))(worker)
        self.workers.remove(worker)

    def leave(self, worker: Worker) -> None:
        if worker.planned is None:
            self.books |= {(window, worker): lease.held for window, lease in worker.ledger.given_back().items()}
            self.workers.remove(worker)

    def pass_time(self, _worker: Worker) -> None:
        self.now += timedelta(minutes=self.chance.randint(1, 90))

    def forget(self, worker: Worker) -> None:
        if worker.planned is None:
            worker.ledger.forget_ended(self.now)

    def check(self) -> None:
        for window, owed in self.owed.items():
            assert owed <= self.of_window[window], f"{window} has {self.of_window[window]}, and {owed} is spent"
        leased: dict[Window, Decimal] = {}
        for (window, _), held in self.books.items():
            leased[window] = leased.get(window, NOTHING) + held
        for window, held in leased.items():
            assert held <= self.of_window[window], f"{window} is leased {held} of {self.of_window[window]}"
        for worker in self.workers:
            for window, lease in worker.ledger.leases.items():
                assert lease.committed <= lease.held, f"{window}: more in use than leased"
                assert lease.held <= self.books.get((window, worker), NOTHING), f"{window}: the books do not know"


def test_no_schedule_spends_past_a_limit() -> None:
    happened: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        schedule = Schedule(seed)
        for step in range(STEPS):
            schedule.step()
            try:
                schedule.check()
            except AssertionError as error:
                raise AssertionError(f"schedule {seed}, step {step}: {error}") from error
        happened += schedule.happened
    assert min(happened.values()) > SCHEDULES / 2, "everything that can happen did, and often"
    assert len(happened) == 12


def test_what_a_dead_worker_held_is_all_that_is_lost_and_only_until_its_window_ends() -> None:
    limits = Limits(total_usd_per_hour=Decimal(100))
    ((window, _),) = limits.windows("t", START).items()
    dead, alive = Ledger(Decimal("0.1")), Ledger(Decimal("0.1"))
    first = Ask(limits.windows("t", START), Decimal(1))
    held = dead.plan([first], {}).held
    rest = Ask(limits.windows("t", START), Decimal(100) - held[window])
    assert alive.plan([rest], held).refusals == (None,)
    too_much = Ask(rest.windows, rest.amount_usd + CENT)
    assert alive.plan([too_much], held).refusals == (window,)
    whole = Ask(limits.windows("t", window.ends_at), Decimal(100))
    assert alive.plan([whole], held).refusals == (None,)
