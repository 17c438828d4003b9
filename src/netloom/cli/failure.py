"""Error messages: `Error: ...` in one line, then one line for each invalid field."""

from netloom.errors import NetloomError


def explain(error: BaseException, *, where: str = "") -> str:
    """Return the message for an error; `where` is the file or object it concerns."""
    prefix = f"Error: {where}: " if where else "Error: "
    if isinstance(error, BaseExceptionGroup):
        # Several tasks failed together: print each message once.
        return "\n".join(dict.fromkeys(explain(one, where=where) for one in error.exceptions))
    if isinstance(error, NetloomError):
        return prefix + _with_causes(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{prefix}{error.filename}: {error.strerror}" if error.filename else prefix + error.strerror
    return (
        f"{prefix}unexpected {type(error).__name__}: {error} "
        "(this is a bug; set NETLOOM_TRACEBACK=1 to see the traceback)"
    )


def _with_causes(error: NetloomError) -> str:
    causes = list(dict.fromkeys(map(str, error.causes)))
    if not causes:
        return error.message
    # The server's message repeats the causes after these words; below they are listed one per line.
    words = next((words for words in (" is invalid:", " is used by ") if words in error.message), "")
    title = error.message.partition(words)[0] + words.rstrip(" :") if words else error.message
    if len(causes) == 1 and causes[0] in title:
        return title
    return "\n  ".join([f"{title}:" if not title.endswith((".", ":")) else title, *causes])
