"""The JSON tree of OpenCode 1.1 and before: one file a record.

The package imports nothing: a warm search uses the change feed alone, and the store takes long to load.
"""
