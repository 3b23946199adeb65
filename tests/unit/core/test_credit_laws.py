"""The laws of exact credit: production against brute force over all coalitions, in fractions. Equal, never close."""

import itertools
from dataclasses import dataclass
from fractions import Fraction
from math import factorial, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core import brute_force
from worker.core.apportion import apportion
from worker.core.credit import (
    NARROW_SOURCES_MAX,
    Credit,
    _credit_from_rounded_layers,
    compute_credit,
    exact_credit,
)
from worker.core.model import SUPPORT_SCALE, UNIT_SCALE
from worker.core.policy import Grouping, Policy, PolicyName
from worker.core.supports import checked_matrix

SOURCES_MAX = 8
RUBRIC = (0, 3_000, 7_000, 10_000)
Matrix = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Game:
    """A matrix with all that decides its credit."""

    supports: Matrix
    weights: tuple[int, ...]
    owners: tuple[str | None, ...]
    policy: Policy
    grouping: Grouping

    def exact(self) -> list[Fraction]:
        numerators, denominator = exact_credit(
            self.supports, self.weights, owners=self.owners, policy=self.policy, grouping=self.grouping
        )
        return [Fraction(numerator, denominator) for numerator in numerators]

    def credit(self) -> Credit:
        return compute_credit(
            self.supports, self.weights, owners=self.owners, policy=self.policy, grouping=self.grouping
        )

    def brute_force(self) -> list[Fraction]:
        owners = self.owners if self.grouping is Grouping.OWNER else None
        return brute_force.credit(brute_force.Case(self.supports, self.weights, utility_of(self.policy), owners))

    def utility(self) -> Fraction:
        whole = sum(weight * max(row) for weight, row in zip(self.weights, self.supports, strict=True))
        return Fraction(whole, sum(self.weights) * SUPPORT_SCALE)


def utility_of(policy: Policy) -> brute_force.Utility:
    match policy.name:
        case PolicyName.MAX:
            return brute_force.max_of
        case PolicyName.TOP_K:
            return brute_force.top_k_of(policy.k or 0)
        case PolicyName.RANK_WEIGHTED:
            return brute_force.rank_weighted_of(policy.omega or ())


fractions_below_one = st.builds(
    lambda numerator, denominator: Fraction(min(numerator, denominator), denominator),
    st.integers(0, 7),
    st.integers(1, 7),
)
omegas = st.lists(fractions_below_one, max_size=5).map(lambda rest: [Fraction(1), *sorted(rest, reverse=True)])
policies = st.one_of(
    st.just(Policy.max()),
    st.integers(1, SOURCES_MAX + 1).map(Policy.top_k),
    omegas.map(Policy.rank_weighted),
)
cell_kinds = st.sampled_from(
    [
        st.sampled_from(RUBRIC),
        st.integers(0, SUPPORT_SCALE),
        st.sampled_from((0, SUPPORT_SCALE)),
        st.integers(0, 3),
    ]
)
owner_names = st.sampled_from((None, "a", "b", "c"))


@st.composite
def games(draw: st.DrawFn, *, policy: st.SearchStrategy[Policy] = policies, sources_max: int = SOURCES_MAX) -> Game:
    source_count = draw(st.integers(1, sources_max))
    key_point_count = draw(st.integers(1, 4))
    row = st.tuples(*[draw(cell_kinds)] * source_count)
    return Game(
        supports=draw(st.tuples(*[row] * key_point_count)),
        weights=draw(st.tuples(*[st.integers(1, 5)] * key_point_count)),
        owners=draw(st.tuples(*[owner_names] * source_count)),
        policy=draw(policy),
        grouping=draw(st.sampled_from(Grouping)),
    )


def with_supports(game: Game, supports: Matrix) -> Game:
    return Game(supports, game.weights, game.owners, game.policy, game.grouping)


def permuted(game: Game, order: tuple[int, ...]) -> Game:
    supports = tuple(tuple(row[i] for i in order) for row in game.supports)
    return Game(supports, game.weights, tuple(game.owners[i] for i in order), game.policy, game.grouping)


def owner_totals(game: Game, values: list[Fraction]) -> dict[str, Fraction]:
    totals: dict[str, Fraction] = {}
    for owner, value in zip(game.owners, values, strict=True):
        if owner is not None:
            totals[owner] = totals.get(owner, Fraction(0)) + value
    return totals


@given(games())
def test_credit_is_the_shapley_or_owen_value_over_all_coalitions(game: Game) -> None:
    assert game.exact() == game.brute_force()


@given(games())
def test_units_are_the_largest_remainder_split_of_the_brute_force_value(game: Game) -> None:
    value = game.brute_force()
    utility_units = int(sum(value) * UNIT_SCALE)
    assert game.credit() == Credit(
        utility_units=utility_units,
        residual_units=UNIT_SCALE - utility_units,
        credit_units=tuple(brute_force.largest_remainder(utility_units, value)),
        share_units=tuple(brute_force.largest_remainder(UNIT_SCALE, value)),
    )


@given(games(sources_max=40))
def test_credit_sums_to_the_utility_of_all_sources_under_every_policy(game: Game) -> None:
    assert sum(game.exact()) == game.utility()


@given(games(sources_max=40))
def test_units_sum_exactly_and_stay_within_their_bounds(game: Game) -> None:
    credit = game.credit()
    assert sum(credit.credit_units) == credit.utility_units == int(game.utility() * UNIT_SCALE)
    assert credit.utility_units + credit.residual_units == UNIT_SCALE
    assert sum(credit.share_units) == (UNIT_SCALE if game.utility() else 0)
    assert all(0 <= units <= UNIT_SCALE for units in (*credit.credit_units, *credit.share_units))


@given(games(), st.data())
def test_equal_sources_earn_equally(game: Game, data: st.DataObject) -> None:
    twin = data.draw(st.integers(0, len(game.owners) - 1))
    doubled = Game(
        tuple((*row, row[twin]) for row in game.supports),
        game.weights,
        (*game.owners, game.owners[twin]),
        game.policy,
        game.grouping,
    )
    value = doubled.exact()
    assert value[twin] == value[-1]


@given(games(), st.data())
def test_a_source_that_supports_nothing_gets_exactly_nothing_and_changes_nothing(
    game: Game, data: st.DataObject
) -> None:
    owner = data.draw(owner_names)
    beside = Game(
        tuple((*row, 0) for row in game.supports), game.weights, (*game.owners, owner), game.policy, game.grouping
    )
    assert beside.exact() == [*game.exact(), 0]
    assert beside.credit().credit_units == (*game.credit().credit_units, 0)
    assert beside.credit().share_units == (*game.credit().share_units, 0)


@given(games())
def test_credit_adds_up_over_key_points(game: Game) -> None:
    total = [Fraction(0)] * len(game.owners)
    for row, weight in zip(game.supports, game.weights, strict=True):
        alone = Game((row,), (1,), game.owners, game.policy, game.grouping).exact()
        factor = Fraction(weight, sum(game.weights))
        total = [before + factor * value for before, value in zip(total, alone, strict=True)]
    assert game.exact() == total


@given(games(), st.data())
def test_permuting_sources_permutes_credit(game: Game, data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(len(game.owners)))))
    value = game.exact()
    assert permuted(game, order).exact() == [value[i] for i in order]


@given(games(), st.integers(1, 10**20))
def test_only_the_proportions_of_weights_matter(game: Game, factor: int) -> None:
    heavier = Game(game.supports, tuple(factor * w for w in game.weights), game.owners, game.policy, game.grouping)
    assert heavier.exact() == game.exact()
    assert heavier.credit() == game.credit()


@given(games(policy=st.just(Policy.max())), st.data())
def test_more_support_never_earns_less_under_max(game: Game, data: st.DataObject) -> None:
    source = data.draw(st.integers(0, len(game.owners) - 1))
    key_point = data.draw(st.integers(0, len(game.weights) - 1))
    row = list(game.supports[key_point])
    row[source] = data.draw(st.integers(row[source], SUPPORT_SCALE))
    raised = with_supports(game, (*game.supports[:key_point], tuple(row), *game.supports[key_point + 1 :]))
    assert raised.exact()[source] >= game.exact()[source]


@given(games(), st.data())
def test_an_owners_total_does_not_depend_on_copies_of_its_own_document(game: Game, data: st.DataObject) -> None:
    owned = [i for i, owner in enumerate(game.owners) if owner is not None]
    copies = data.draw(st.lists(st.sampled_from(owned), max_size=4)) if owned else []
    before = Game(game.supports, game.weights, game.owners, game.policy, Grouping.OWNER)
    after = Game(
        tuple((*row, *(row[i] for i in copies)) for row in game.supports),
        game.weights,
        (*game.owners, *(game.owners[i] for i in copies)),
        game.policy,
        Grouping.OWNER,
    )
    assert owner_totals(after, after.exact()) == owner_totals(before, before.exact())


@given(games())
def test_grouping_by_owner_changes_nothing_when_each_owner_has_one_source(game: Game) -> None:
    distinct = tuple(f"owner {i}" if owner else None for i, owner in enumerate(game.owners))
    plain = Game(game.supports, game.weights, distinct, game.policy, Grouping.SOURCE)
    grouped = Game(game.supports, game.weights, distinct, game.policy, Grouping.OWNER)
    assert grouped.exact() == plain.exact()
    assert grouped.credit() == plain.credit()


@given(games())
def test_policies_that_pay_the_best_support_alone_are_max(game: Game) -> None:
    as_max = Game(game.supports, game.weights, game.owners, Policy.max(), game.grouping).credit()
    for policy in (Policy.top_k(1), Policy.rank_weighted(("1",)), Policy.rank_weighted(("1", "0"))):
        assert Game(game.supports, game.weights, game.owners, policy, game.grouping).credit() == as_max


def test_every_small_rubric_key_point_equals_brute_force() -> None:
    for row in itertools.combinations_with_replacement(RUBRIC, 5):
        game = Game((row,), (1,), ("a", "a", "b", None, "b"), Policy.top_k(2), Grouping.OWNER)
        assert game.exact() == game.brute_force()


@given(games(sources_max=4))
def test_the_brute_force_is_the_mean_over_all_orders_of_unions_and_of_their_members(game: Game) -> None:
    case = brute_force.Case(game.supports, game.weights, utility_of(game.policy), game.owners)
    unions, worth = case.unions(), brute_force.remembered(case.worth())
    orders = [
        list(itertools.chain.from_iterable(order_of_members))
        for order_of_unions in itertools.permutations(unions)
        for order_of_members in itertools.product(*map(itertools.permutations, order_of_unions))
    ]
    assert len(orders) == factorial(len(unions)) * prod(factorial(len(union)) for union in unions)
    totals = [Fraction(0)] * len(game.owners)
    for order in orders:
        for place, source in enumerate(order):
            before = frozenset(order[:place])
            totals[source] += worth(before | {source}) - worth(before)
    assert brute_force.credit(case) == [total / len(orders) for total in totals]


@given(games(policy=st.just(Policy.max()), sources_max=40))
def test_rounded_layers_give_the_exact_units_or_say_that_they_cannot_tell(game: Game) -> None:
    matrix = checked_matrix(game.supports, game.weights, None)
    rounded = _credit_from_rounded_layers(matrix)
    assert rounded in (None, compute_credit(game.supports, game.weights))


@pytest.mark.parametrize("key_point_count", [1, 3])
def test_wide_answers_are_decided_by_rounded_layers_unless_sources_tie(key_point_count: int) -> None:
    source_count = NARROW_SOURCES_MAX + 1
    distinct = [[(i * 7_919 + j * 104_729) % 9_973 for i in range(source_count)] for j in range(key_point_count)]
    tied = [[RUBRIC[support % 4] for support in row] for row in distinct]
    assert _credit_from_rounded_layers(checked_matrix(distinct, None, None)) is not None
    assert _credit_from_rounded_layers(checked_matrix(tied, None, None)) is None
    for supports in (distinct, tied):
        numerators, denominator = exact_credit(supports)
        credit = compute_credit(supports)
        assert credit.utility_units == sum(numerators) * UNIT_SCALE // denominator
        assert credit.credit_units == apportion(credit.utility_units, numerators)
        assert credit.share_units == apportion(UNIT_SCALE, numerators)


def test_a_wide_answer_without_support_is_all_residual() -> None:
    source_count = NARROW_SOURCES_MAX + 1
    nothing = (0,) * source_count
    assert compute_credit([nothing]) == Credit(0, UNIT_SCALE, nothing, nothing)
