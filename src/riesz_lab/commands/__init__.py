"""One file per command, each with `run(arguments) -> exit status`."""
