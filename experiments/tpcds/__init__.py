"""TPC-DS by ``mrflight sql``: its tables and queries, their answers, and the runs."""
