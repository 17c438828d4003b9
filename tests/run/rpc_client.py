"""An RPC client of the old system, as a program: a call for each line of its input, an answer for each call.

A process of its own: oslo.messaging imports eventlet, which complains about every later fork.
"""

import json
import sys
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # eventlet says that it is deprecated.
    import oslo_messaging
    from oslo_config import cfg


def main(url: str, password: str, ca: str) -> None:
    """Answer until the input ends."""
    settings = cfg.CONF
    settings([], default_config_files=[], default_config_dirs=[])
    broker = oslo_messaging.TransportURL.parse(settings, url)
    broker.hosts[0].password = password
    if ca:
        broker.query = {"ssl": "true", "ssl_ca_file": ca}
    transport = oslo_messaging.get_rpc_transport(settings, url=broker)
    for line in sys.stdin:
        topic, method, arg = json.loads(line)
        client = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic=topic), timeout=120)
        try:
            answer = {"answer": client.call({}, method, arg=arg)}
        except oslo_messaging.RemoteError as error:
            answer = {"error": f"{error.exc_type}: {error.value}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    transport.cleanup()


if __name__ == "__main__":
    main(*sys.argv[1:])
