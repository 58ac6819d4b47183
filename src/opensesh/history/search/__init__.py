"""The index of all words there are, and the search in it."""
