"""Shell commands: parse (:mod:`.lexer`, :mod:`.parser`), classify (:mod:`.effects`, :mod:`.read_only`), run
(:mod:`.execution`, :mod:`.process`)."""
