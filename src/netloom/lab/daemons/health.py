"""Asks a server inside a namespace whether it is ready, as a probe of Kubernetes does."""

import http.client
import ssl
from urllib.parse import urlsplit

from netloom.lab.daemons.entering import inside

SECONDS = 2.0


def answers(url: str, netns: str) -> bool:
    """Whether a GET of a URL is answered with 200 there, or on this machine without a namespace; blocking."""

    def asked() -> bool:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 0
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            # The loopback of a namespace of ours: nobody else listens there, and nothing is sent but the question.
            context = ssl._create_unverified_context()  # noqa: S323  # as said
            connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
        try:
            connection.request("GET", parts.path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    try:
        return inside(netns, asked) if netns else asked()
    except OSError:
        return False  # The namespace is gone.
