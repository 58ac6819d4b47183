"""Sessions as HTML: what web pages, exported pages and share pages have in common."""
