import json

from hypothesis import given
from hypothesis import strategies as st

from worker.adapters.postgres.text import jsonb, scrubbed, scrubbed_json

TEXT = st.text(st.characters(categories=["L", "Cs", "Cc", "So"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_whatever_goes_in_jsonb_can_hold_what_comes_out(value: object) -> None:
    encoded = jsonb(value)
    assert json.loads(encoded.encode()) == scrubbed_json(value)


def test_an_escaped_backslash_before_u0000_is_text_and_stays() -> None:
    assert json.loads(jsonb({"a": "\\u0000"})) == {"a": "\\u0000"}


def test_only_what_cannot_be_stored_is_replaced() -> None:
    assert scrubbed("a\x00b\ud800c\U0001f375\x01") == "a�b�c\U0001f375\x01"
