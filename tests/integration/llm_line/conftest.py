"""Both providers, one after the other."""

import pytest

from tests.support.llm import DIALECTS, Dialect


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.provider)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    chosen: Dialect = request.param
    return chosen
