import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.adapters.postgres.headers import decode_headers, encode_headers
from worker.core.records import Headers


@given(st.lists(st.tuples(st.text(), st.binary() | st.none())).map(tuple))
def test_headers_come_back_in_order_with_duplicates_and_without_values(headers: Headers) -> None:
    assert decode_headers(encode_headers(headers)) == headers


@given(st.lists(st.tuples(st.text(min_size=1), st.binary(min_size=1)), min_size=1).map(tuple), st.data())
def test_headers_cut_short_are_refused(headers: Headers, data: st.DataObject) -> None:
    encoded = encode_headers(headers)
    last = 4 + len(headers[-1][1] or b"")
    cut = data.draw(st.integers(1, last - 1))
    with pytest.raises(ValueError, match=r"headers end|zip"):
        decode_headers(encoded[:-cut])
