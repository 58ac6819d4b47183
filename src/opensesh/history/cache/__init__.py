"""The derived cache: one SQLite file a store, from which search and statistics are answered."""
