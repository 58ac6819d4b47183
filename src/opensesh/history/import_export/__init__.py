"""Export, redaction and import of sessions."""
