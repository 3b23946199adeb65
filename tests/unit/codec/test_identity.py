from decimal import Decimal
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.codec import content_hash
from worker.core.model import OwnerId, Reward, Source, SourceId

texts = st.text(st.sampled_from("ab,:0\N{GRINNING FACE}"), max_size=3)
filled = st.text(st.sampled_from("ab,:0"), min_size=1, max_size=3)
sources = st.builds(Source, filled.map(SourceId), filled, st.none() | filled.map(OwnerId), texts, texts, texts)
contents = st.tuples(texts, texts, st.lists(sources, max_size=2).map(tuple), st.none())


def test_the_hashed_bytes_are_as_documented_so_that_anyone_can_recompute_them() -> None:
    source = Source(SourceId("s1"), "größer", OwnerId("o"), "u", None, None)
    hashed = "answer.v1|q||1|s1|größer|o|u|||12.5|EUR".replace("|", "\0")
    assert content_hash("q", "", [source], Reward(Decimal("12.50"), "EUR")) == sha256(hashed.encode()).digest()


@given(contents, contents)
def test_two_contents_share_a_hash_only_if_they_are_the_same(
    one: tuple[str, str, tuple[Source, ...], None], other: tuple[str, str, tuple[Source, ...], None]
) -> None:
    assert (content_hash(*one) == content_hash(*other)) == (one == other)


def test_a_value_with_nul_would_be_ambiguous_and_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        content_hash("q\0a", "", [], None)
