"""The connections to OVN's databases, from settings."""

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from netloom.control.ovn import southbound
from netloom.control.ovn.southbound import Southbound
from netloom.errors import Cause, Invalid
from netloom.ovsdb.io import Dial, OvsdbClient
from netloom.ovsdb.monitor import Change
from netloom.ovsdb.reconnect import is_exposed, is_remote
from netloom.plan.names import OWNER
from netloom.run.config import ControlSettings, invalid

if TYPE_CHECKING:
    from netloom.drivers.northbound.driver import Northbound


class Ovn(Struct, frozen=True, kw_only=True):
    """How to connect to OVN."""

    nb: tuple[str, ...]
    sb: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    names: tuple[str, ...] = ()
    """The names that certificates of the servers may be for; none: the host in each remote."""
    owner: str = OWNER
    dial: Dial | None = None
    """A replacement for sockets, for tests."""

    @property
    def exposed(self) -> str:
        """A warning if a database is reached over a network in clear text; "" otherwise."""
        found = [remote for remote in (*self.nb, *self.sb) if is_exposed(remote)]
        if not found:
            return ""
        return f"the connection to OVN at {', '.join(found)} is not encrypted: use ssl: in ovnNb and ovnSb"

    def connect_north(self, random: Random, fence: Callable[[], bool]) -> "Northbound":
        """Return the driver of the northbound."""
        from netloom.drivers.northbound import driver  # only where there is OVN

        def connect(changed: Callable[[Sequence[Change]], None]) -> OvsdbClient:
            return OvsdbClient(
                self.nb,
                driver.DATABASE,
                tables=driver.TABLES,
                random=random,
                tls=self.tls,
                names=self.names,
                changed=changed,
                dial=self.dial,
            )

        return driver.Northbound(connect, self.owner, random=random, fence=fence)

    def connect_south(self, random: Random) -> Southbound | None:
        """Return the reader of the southbound, None if no southbound is configured."""
        if not self.sb:
            return None

        def connect(changed: Callable[[Sequence[Change]], None]) -> OvsdbClient:
            return OvsdbClient(
                self.sb,
                southbound.DATABASE,
                tables=southbound.TABLES,
                conditions=southbound.CONDITIONS,
                random=random,
                leader_only=False,
                tls=self.tls,
                names=self.names,
                changed=changed,
                dial=self.dial,
            )

        return Southbound(connect)


def from_settings(settings: ControlSettings) -> Ovn | None:
    """Return how to connect to OVN, None without OVN; raise `Invalid` with all errors in the settings."""
    causes = [
        Cause(key, f"{remote!r} is not unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT")
        for key, remotes in (("ovnNb", settings.ovn_nb), ("ovnSb", settings.ovn_sb))
        for remote in remotes
        if not is_remote(remote)
    ]
    secure = any(remote.startswith("ssl:") for remote in (*settings.ovn_nb, *settings.ovn_sb))
    files = (("ovnKey", settings.ovn_key), ("ovnCert", settings.ovn_cert), ("ovnCa", settings.ovn_ca))
    if secure:
        causes += [Cause(key, "required for ssl: servers", "FieldValueRequired") for key, path in files if not path]
    causes += [Cause(key, f"no such file: {path}") for key, path in files if path and not Path(path).is_file()]
    if settings.ovn_nb and not settings.ovn_owner:
        causes.append(Cause("ovnOwner", "must not be empty", "FieldValueRequired"))
    if causes:
        raise Invalid("invalid configuration", causes=causes)
    if not settings.ovn_nb:
        return None
    tls = _tls(settings) if secure else None
    names = settings.ovn_server_names if secure else ()
    return Ovn(nb=settings.ovn_nb, sb=settings.ovn_sb, tls=tls, names=names, owner=settings.ovn_owner)


def _tls(settings: ControlSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=settings.ovn_ca)
        # The flags that Python adds here depend on its version: since 3.13 they refuse the CAs that `ovs-pki` makes,
        # which have no key usage. Signature, validity, purpose and name are verified in every version.
        context.verify_flags = ssl.VerifyFlags.VERIFY_X509_TRUSTED_FIRST
        context.check_hostname = not settings.ovn_server_names  # Otherwise the client compares with these names.
        context.load_cert_chain(settings.ovn_cert, settings.ovn_key)
    except (OSError, ssl.SSLError) as error:
        raise invalid("ovnKey, ovnCert, ovnCa", f"not usable: {error}") from None
    return context
