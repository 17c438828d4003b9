"""Open the store that `--store` names.

memory:
sqlite:PATH
etcd:URL,URL,…[?ca=FILE&cert=FILE&key=FILE&prefix=/PATH&compact=SECONDS&keepalive=SECONDS]
"""

from pathlib import Path
from urllib.parse import parse_qsl

from netloom.errors import BadRequest
from netloom.store.base import Store

_ETCD_OPTIONS = {"ca", "cert", "key", "prefix", "compact", "keepalive"}


async def open_store(url: str) -> Store:
    """Open the store that `url` names.  Each implementation is imported when it is needed: a process uses one."""
    scheme, _, rest = url.partition(":")
    match scheme:
        case "memory" if not rest:
            from netloom.store.memory import MemoryStore

            return MemoryStore()
        case "sqlite" if rest:
            from netloom.store.sqlite.store import SqliteStore

            return await SqliteStore.open(rest)
        case "etcd" if rest:
            return await _open_etcd(rest)
    raise BadRequest(f"{url!r} is not a store: it is memory:, sqlite:PATH or etcd:URL,URL,…")


async def _open_etcd(text: str) -> Store:
    from netloom.store.etcd.api import KEEPALIVE, Tls
    from netloom.store.etcd.store import EtcdStore

    addresses, _, query = text.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := options.keys() - _ETCD_OPTIONS:
        raise BadRequest(f"etcd has no option {min(unknown)!r}; it has: {', '.join(sorted(_ETCD_OPTIONS))}")
    if ("cert" in options) != ("key" in options):
        raise BadRequest("etcd needs both cert and key, or neither")
    tls = Tls(*(_contents(options.get(name, "")) for name in ("ca", "cert", "key")))
    return await EtcdStore.open(
        [part.strip() for part in addresses.split(",") if part.strip()],
        prefix=_prefix(options.get("prefix", "/netloom")),
        tls=tls if options.keys() & {"ca", "cert"} else None,
        compact_every=_seconds("compact", options["compact"]) if "compact" in options else None,
        keepalive=_seconds("keepalive", options["keepalive"]) if "keepalive" in options else KEEPALIVE,
    )


def _prefix(text: str) -> str:
    if not text.startswith("/") or text.endswith("/") or not text.isascii():
        raise BadRequest(f"etcd prefix {text!r} must be like /netloom: a slash at the beginning, none at the end")
    return text


def _seconds(option: str, text: str) -> float:
    if not text.isdigit() or int(text) == 0:
        raise BadRequest(f"etcd {option}={text!r} must be a whole number of seconds above 0")
    return float(text)


def _contents(path: str) -> bytes:
    try:
        return Path(path).read_bytes() if path else b""
    except OSError as error:
        raise BadRequest(f"cannot read {path}: {error.strerror}") from error
