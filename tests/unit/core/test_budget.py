"""What single workers get of budgets, window by window."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from worker.core.budget import Ask, BudgetScope, Ledger, Limits, Period, Window, reservable

NOON = datetime(2026, 6, 1, 12, 30, tzinfo=UTC)
DAY = Limits(total_usd_per_day=Decimal(100))
ALL = Limits(Decimal(10), Decimal(100), Decimal(2), Decimal(20))


def usd(text: str) -> Decimal:
    return Decimal(text)


def ask(amount: str, limits: Limits = DAY, tenant: str = "t", at: datetime = NOON) -> Ask:
    return Ask(limits.windows(tenant, at), usd(amount))


def only(limits: Limits) -> Window:
    (window,) = limits.windows("t", NOON)
    return window


def leased(ledger: Ledger, given: Ask, others: dict[Window, Decimal] | None = None) -> bool:
    """Plan and apply at once; whether the ask was granted."""
    plan = ledger.plan([given], others or {})
    return ledger.apply(plan, [given]) != [None]


def test_a_call_falls_into_an_hour_and_a_day_of_the_total_and_of_its_tenant() -> None:
    assert dict(ALL.windows("t", NOON)) == {
        Window(BudgetScope.TOTAL, "", Period.HOUR, NOON.replace(minute=0)): usd("10"),
        Window(BudgetScope.TOTAL, "", Period.DAY, NOON.replace(hour=0, minute=0)): usd("100"),
        Window(BudgetScope.TENANT, "t", Period.HOUR, NOON.replace(minute=0)): usd("2"),
        Window(BudgetScope.TENANT, "t", Period.DAY, NOON.replace(hour=0, minute=0)): usd("20"),
    }


def test_windows_are_in_utc_whatever_zone_the_time_comes_in() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=-11)))
    assert ALL.windows("t", elsewhere) == ALL.windows("t", NOON)


def test_windows_meet_without_a_gap() -> None:
    for window in ALL.windows("t", NOON):
        assert window not in ALL.windows("t", window.ends_at)
        assert window in ALL.windows("t", window.ends_at - timedelta(microseconds=1))


def test_without_limits_there_is_no_window() -> None:
    assert Limits().windows("t", NOON) == {}
    assert not Limits().any_set
    assert Ledger(usd("0.1")).reserve(ask("5", Limits())) is not None


def test_nothing_is_reserved_before_a_lease() -> None:
    assert Ledger(usd("0.1")).reserve(ask("1")) is None


def test_a_lease_holds_what_is_needed_and_a_fraction_of_the_rest() -> None:
    ledger = Ledger(usd("0.1"))
    assert leased(ledger, ask("20"))
    lease = ledger.leases[only(DAY)]
    assert (lease.held, lease.reserved, lease.spent) == (usd("28"), usd("20"), usd("0"))


def test_within_a_lease_the_books_are_not_asked() -> None:
    ledger = Ledger(usd("0.1"))
    leased(ledger, ask("20"))
    assert ledger.reserve(ask("8")) is not None
    assert ledger.reserve(ask("0.01")) is None


def test_a_settled_call_leaves_the_rest_of_its_reservation_to_the_next() -> None:
    ledger = Ledger(usd("0.1"))
    leased(ledger, ask("20"))
    held = ledger.reserve(ask("8"))
    assert held is not None
    held.settle(usd("3"))
    assert ledger.reserve(ask("5")) is not None
    assert ledger.leases[only(DAY)].spent == usd("3")


def test_a_released_call_cost_nothing() -> None:
    ledger = Ledger(usd("0.1"))
    leased(ledger, ask("20"))
    held = ledger.reserve(ask("8"))
    assert held is not None
    held.release()
    assert ledger.reserve(ask("8")) is not None


def test_a_call_whose_response_was_lost_keeps_what_it_reserved() -> None:
    ledger = Ledger(usd("0.1"))
    leased(ledger, ask("20"))
    held = ledger.reserve(ask("8"))
    assert held is not None
    held.settle(None)
    assert ledger.leases[only(DAY)].spent == usd("8")
    assert ledger.reserve(ask("0.01")) is None


def test_settling_twice_counts_once() -> None:
    ledger = Ledger(usd("0.1"))
    leased(ledger, ask("20"))
    held = ledger.reserve(ask("8"))
    assert held is not None
    held.settle(usd("3"))
    held.settle(usd("4"))
    held.release()
    lease = ledger.leases[only(DAY)]
    assert (lease.spent, lease.reserved) == (usd("3"), usd("20"))


def test_a_lone_worker_can_spend_a_budget_to_its_last_unit() -> None:
    ledger = Ledger(usd("0.02"))
    for _ in range(100):
        assert ledger.reserve(ask("1")) or leased(ledger, ask("1"))
    assert not leased(ledger, ask("0.0000000001"))


def test_what_others_hold_is_not_there_to_take() -> None:
    ledger = Ledger(usd("0.5"))
    others = {only(DAY): usd("95")}
    assert not leased(ledger, ask("5.0000000001"), others)
    assert leased(ledger, ask("5"), others)
    assert ledger.leases[only(DAY)].held == usd("5")


def test_a_refused_ask_takes_nothing_from_a_smaller_one_behind_it() -> None:
    ledger = Ledger(usd("0.1"))
    asks = [ask("60"), ask("60"), ask("40")]
    plan = ledger.plan(asks, {})
    assert [refused is None for refused in plan.refusals] == [True, False, True]
    assert plan.held == {only(DAY): usd("100")}


def test_where_both_are_spent_the_total_is_named_and_not_the_tenant() -> None:
    plan = Ledger(usd("0.1")).plan([ask("11", ALL)], {})
    (refused,) = plan.refusals
    assert refused is not None
    assert (refused.scope, refused.period) == (BudgetScope.TOTAL, Period.HOUR)


def test_a_tenants_own_budget_holds_up_no_other_tenant() -> None:
    ledger = Ledger(usd("0.1"))
    asks = [ask("2", ALL, "greedy"), ask("1", ALL, "greedy"), ask("1", ALL, "modest")]
    plan = ledger.plan(asks, {})
    assert [refused and refused.scope for refused in plan.refusals] == [None, BudgetScope.TENANT, None]


def test_a_window_that_suffices_is_not_leased_more_of_because_another_does_not() -> None:
    ledger = Ledger(usd("0.1"))
    leased(ledger, ask("1", ALL, "one"))
    total = Window(BudgetScope.TOTAL, "", Period.DAY, NOON.replace(hour=0, minute=0))
    held = ledger.leases[total].held
    leased(ledger, ask("0.5", ALL, "two"))
    assert ledger.leases[total].held == held


def test_what_a_plan_promised_is_not_reserved_by_a_faster_call_meanwhile() -> None:
    ledger = Ledger(usd("0.1"))
    leased(ledger, ask("20"))
    slow = ask("7")
    plan = ledger.plan([slow], {})
    assert ledger.reserve(ask("1")) is not None
    assert ledger.reserve(ask("1")) is None
    assert ledger.apply(plan, [slow]) != [None]
    lease = ledger.leases[only(DAY)]
    assert lease.committed <= lease.held


def test_a_dropped_plan_leaves_everything_as_it_was() -> None:
    ledger = Ledger(usd("0.1"))
    leased(ledger, ask("20"))
    ledger.plan([ask("50")], {})
    ledger.drop_plan()
    assert ledger.leases[only(DAY)].held == usd("28")
    assert ledger.reserve(ask("8")) is not None


def test_a_cost_above_its_reservation_counts_in_full_and_leaves_less_for_the_next() -> None:
    ledger = Ledger(usd("0.1"))
    leased(ledger, ask("90"))
    held = ledger.reserve(ask("1"))
    assert held is not None
    held.settle(usd("15"))
    assert ledger.reserve(ask("0.01")) is None
    assert not leased(ledger, ask("0.01"))


def test_a_new_window_has_its_whole_budget() -> None:
    ledger = Ledger(usd("0.1"))
    assert leased(ledger, ask("100"))
    assert not leased(ledger, ask("1"))
    assert leased(ledger, ask("100", at=NOON + timedelta(days=1)))


def test_leases_of_past_windows_are_forgotten_once_nothing_is_in_flight_in_them() -> None:
    ledger = Ledger(usd("0.1"))
    leased(ledger, ask("1"))
    held = ledger.reserve(ask("1"))
    leased(ledger, ask("1", at=NOON + timedelta(days=1)))
    tomorrow = NOON + timedelta(days=1)
    ledger.forget_ended(tomorrow)
    assert only(DAY) in ledger.leases, "a call of yesterday is still in flight"
    assert held is not None
    held.release()
    ledger.leases[only(DAY)].reserved = usd("0")
    ledger.forget_ended(tomorrow)
    assert list(ledger.leases) == list(DAY.windows("t", tomorrow))


def test_at_the_end_a_worker_keeps_what_it_spent_and_what_is_in_flight() -> None:
    ledger = Ledger(usd("0.1"))
    leased(ledger, ask("20"))
    held = ledger.reserve(ask("5"))
    assert held is not None
    held.settle(usd("1"))
    assert {window: lease.held for window, lease in ledger.given_back().items()} == {only(DAY): usd("21")}


@pytest.mark.parametrize(("amount", "held"), [("0.00000000001", "0.0000000001"), ("1.5", "1.5"), ("0", "0")])
def test_amounts_are_rounded_up_to_what_the_books_can_hold(amount: str, held: str) -> None:
    assert reservable(usd(amount)) == usd(held)
