"""Sessions out and in: exported, redacted, imported, united."""
