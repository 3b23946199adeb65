"""What a provider grants one account for one model, as far as we know: pure, told the time by its caller."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from worker.core.buckets import Bucket, Due
from worker.core.charging import Dimension, Reservation
from worker.core.ratelimit_headers import RateLimitHeaders, RateLimitStatus
from worker.core.throttle import Throttle


@dataclass(frozen=True, slots=True)
class Limits:
    """Per minute, and calls in flight; a dimension that is not named is not limited, until the provider names it."""

    per_minute: Mapping[Dimension, int] = field(default_factory=dict)
    calls_in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A call that its limit can never let through."""

    dimension: Dimension
    tokens: int
    limit: int


@dataclass(slots=True)
class Grant:
    """A call let through: what it reserved, and, once it was sent, how much had departed from each bucket by then."""

    granted_ns: int
    reservations: Mapping[Dimension, Reservation]
    sent_ns: int | None = None
    dues: Mapping[Dimension, Due] = field(default_factory=dict)
    departed_by_then: Mapping[Dimension, int] = field(default_factory=dict)


class Quota:
    """All limits of one provider and model: a call gets all of its reservation at once, or nothing of it.

    The provider's headers only ever tighten what was configured; with several replicas on one account each sees in
    them what the others have left. Times must not run backwards.
    """

    def __init__(
        self,
        *,
        limits: Limits,
        throttle: Throttle,
        burst_ns: int,
        initial_burst_ns: int,
        unseen_ns_max: int,
        learns_limits: bool,
        now_ns: int,
    ) -> None:
        self.calls_in_flight = 0
        self._limits = limits
        self._throttle = throttle
        self._burst_ns = burst_ns
        self._unseen_ns_max = unseen_ns_max
        self._learns_limits = learns_limits
        # Nobody knows what a restart, or another replica, has left of the account: begin with little.
        self._buckets = {
            dimension: Bucket(limit=limit, burst_ns=burst_ns, level=0, now_ns=now_ns - initial_burst_ns)
            for dimension, limit in limits.per_minute.items()
        }

    def too_large(self, needed: Mapping[Dimension, int]) -> TooLarge | None:
        """Whether a call exceeds a *configured* limit by itself.

        A limit that only a header told of may be wrong: such a call goes out on a full bucket, and the provider judges.
        """
        for dimension, limit in self._limits.per_minute.items():
            if needed[dimension] > limit:
                return TooLarge(dimension, needed[dimension], limit)
        return None

    def ready_at_ns(self, reservations: Mapping[Dimension, Reservation], now_ns: int) -> int | None:
        """When all of it will be there if nothing else is granted; None: not before a call in flight ends."""
        permille = self._throttle.permille(now_ns)
        in_flight_max = self._limits.calls_in_flight
        if in_flight_max is not None and self.calls_in_flight >= max(1, in_flight_max * permille // 1_000):
            return None
        ready_ns = max(now_ns, self._throttle.paused_until_ns)
        for dimension, bucket in self._buckets.items():
            bucket.set_pace(bucket.limit, permille, now_ns)
            at_ns = bucket.ready_at_ns(reservations[dimension].tokens, now_ns)
            if at_ns is None:
                return None
            ready_ns = max(ready_ns, at_ns)
        return ready_ns

    def grant(self, reservations: Mapping[Dimension, Reservation], now_ns: int) -> Grant:
        """Reserve all of it; the call is in flight until it `ended`."""
        self.calls_in_flight += 1
        mine = {dimension: reservations[dimension] for dimension in self._buckets}
        for dimension, reservation in mine.items():
            self._buckets[dimension].hold(reservation.tokens)
        return Grant(now_ns, mine)

    def sent(self, grant: Grant, now_ns: int) -> None:
        """The call leaves; it arrives within `unseen_ns_max`."""
        grant.sent_ns = now_ns
        grant.dues = {
            dimension: self._buckets[dimension].charge_held_by(reservation.on_arrival, now_ns + self._unseen_ns_max)
            for dimension, reservation in grant.reservations.items()
        }
        grant.departed_by_then = {dimension: self._buckets[dimension].departed for dimension in grant.reservations}

    def settle(self, grant: Grant, used: Mapping[Dimension, int], now_ns: int) -> None:
        """A sent call is done, and used this much."""
        for dimension, reservation in grant.reservations.items():
            bucket = self._buckets[dimension]
            bucket.charge_due(grant.dues[dimension], now_ns)
            bucket.let_go(reservation.open)
            bucket.charge(max(0, used[dimension] - reservation.on_arrival), now_ns)

    def abandon(self, grant: Grant, now_ns: int) -> None:
        """Nobody listens to a sent call any more: it may still arrive, be served, and use all it reserved."""
        for dimension, reservation in grant.reservations.items():
            self._buckets[dimension].charge_held_by(reservation.open, now_ns + self._unseen_ns_max)

    def refused(self, grant: Grant, now_ns: int) -> None:
        """A sent call arrived and was not begun."""
        nothing = dict.fromkeys(grant.reservations, 0)
        self.settle(grant, nothing, now_ns)

    def withdraw(self, grant: Grant) -> None:
        """The call was never sent: it costs nothing."""
        for dimension, reservation in grant.reservations.items():
            self._buckets[dimension].let_go(reservation.tokens)

    def ended(self) -> None:
        """A call is no longer in flight; what became of its tokens was said apart."""
        self.calls_in_flight -= 1

    def empty(self, now_ns: int) -> None:
        """The provider says that a limit is reached, not which: nothing is left of any."""
        for bucket in self._buckets.values():
            bucket.lower_to(0, now_ns)

    def learn(self, grant: Grant, headers: RateLimitHeaders, now_ns: int) -> None:
        """Take over what the response to a granted call says about the account."""
        for dimension, status in headers.statuses.items():
            limit = self._believed_limit(dimension, status)
            if limit is None:
                continue
            bucket = self._buckets.get(dimension)
            if bucket is None:
                if not self._learns_limits:
                    continue
                level = limit if status.remaining is None else status.remaining
                bucket = Bucket(limit=limit, burst_ns=self._burst_ns, level=level, now_ns=now_ns)
                self._buckets[dimension] = bucket
            bucket.set_pace(limit, self._throttle.permille(now_ns), now_ns)
            if status.remaining is not None:
                bucket.lower_to(_left_by_now(status.remaining, bucket, grant, dimension, now_ns), now_ns)

    def available(self, now_ns: int) -> Mapping[Dimension, int]:
        """Whole tokens that could be granted now, per limited dimension; negative in debt."""
        return {dimension: bucket.available(now_ns) for dimension, bucket in self._buckets.items()}

    def held(self, now_ns: int) -> int:
        """What is set aside for calls that are not settled, over all dimensions."""
        return sum(bucket.held(now_ns) for bucket in self._buckets.values())

    def _believed_limit(self, dimension: Dimension, status: RateLimitStatus) -> int | None:
        configured = self._limits.per_minute.get(dimension)
        told = _per_minute(status)
        if told is None or configured is None:
            return told or configured
        return min(told, configured)


def _per_minute(status: RateLimitStatus) -> int | None:
    """The limit that a header names, as one per minute.

    Some providers name one per day. The reset gives it away, and it matters once little is left: then what comes back
    until the reset comes back at that pace. (Where a window is fixed, the reset is near, and nothing changes.)
    """
    if not status.limit:
        return None
    if status.remaining is None or not status.reset_s or status.remaining * 20 > status.limit:
        return status.limit
    refilled_per_minute = int((status.limit - status.remaining) * 60 / status.reset_s)
    return status.limit if refilled_per_minute * 2 >= status.limit else max(1, refilled_per_minute)


def _left_by_now(remaining: int, bucket: Bucket, grant: Grant, dimension: Dimension, now_ns: int) -> int:
    """What the bucket holds now if the provider had `remaining` left when it wrote its header.

    Whether that was when the call arrived or when the answer left, nobody says; the benefit of the doubt is small, and
    the next response corrects it. What departed by then and is not charged here yet, the provider has charged.
    """
    departed = bucket.departed
    departed_by_then = grant.departed_by_then.get(dimension)
    if grant.sent_ns is not None and departed_by_then is not None:
        departed = max(departed, departed_by_then + bucket.refilled_since(grant.sent_ns, now_ns))
    return remaining + departed - bucket.charged
