"""PostgreSQL: connections, migrations, and the tables."""
