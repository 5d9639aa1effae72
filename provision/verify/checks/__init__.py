"""Stage `checks`: the checks that a project or a command line asks for."""
