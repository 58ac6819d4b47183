"""Shell commands: what a command line would run, which shell runs it, and how it is run and ended."""
