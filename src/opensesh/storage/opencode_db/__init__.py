"""The SQLite database of OpenCode 1.2 and later. As in :mod:`..json_tree`, its modules are imported by themselves."""
