"""Services for a first run and for tests, started on 127.0.0.1 and gone afterwards. Never for production."""
