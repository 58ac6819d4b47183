"""Looking after a store: its doctor, its trash, where the room goes, and a way back from each change."""
