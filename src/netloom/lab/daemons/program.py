"""One process of a lab, as a value."""

from msgspec import Struct


class Program(Struct, frozen=True, kw_only=True):
    """One process of a lab."""

    name: str
    argv: tuple[str, ...]
    place: str = ""
    """The namespace it runs in; "": the machine's own."""
    root: str = ""
    """The folder it is run from by chroot; "": the machine's own."""
    environment: dict[str, str] = {}
    needs: tuple[str, ...] = ()
    """The processes that must be ready before it is started the first time."""
    socket: str = ""
    """It is ready when this accepts connections: a path, or HOST:PORT in the machine's own namespace."""
    health: str = ""
    """It is ready when a GET of this URL, from inside its namespace, is answered with 200."""
    after: tuple[tuple[str, ...], ...] = ()
    """Commands to run, in the machine's own namespace, each time it was started."""
    ours: bool = False
    """It is a Netloom program, which ends gracefully on SIGTERM."""
