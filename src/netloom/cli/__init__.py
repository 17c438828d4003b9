"""The `netloom` command.

`main` is the only module that is imported at once; every sub-command is imported when it is called, because a command
line that thinks before it answers `--help` is not used twice.
"""
