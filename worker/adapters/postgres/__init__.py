"""PostgreSQL, the system of record: tables, migrations, and the stores behind the ports."""
