"""The topology of `bench sandbox` in mininet, for the system's Python, which has that library.

    python3 mininet_exercise.py TOPOLOGY.json

Builds it with Linux bridges and prints a JSON line: how long that took, how long mininet's own pings of all pairs took
after it, and the process of each host. It is removed when standard input ends.
"""

# mypy: ignore-errors

import json
import sys
import time

from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Node
from mininet.nodelib import LinuxBridge


def main() -> None:
    """Build it, ping, report, wait, remove it."""
    with open(sys.argv[1]) as opened:
        wanted = json.load(opened)
    setLogLevel("error")
    setattr(Mininet, "inited", True)  # noqa: B010  # Otherwise it changes limits of the machine, for good.
    began = time.perf_counter()
    net = Mininet(controller=None, switch=LinuxBridge)
    switches = {name: net.addSwitch(f"nlb{number}") for number, name in enumerate(wanted["networks"])}
    hosts = []
    for number, (_, network, address, gateway) in enumerate(wanted["hosts"]):
        host = net.addHost(f"nlh{number}", ip=None, defaultRoute=None)
        net.addLink(host, switches[network], params1={"ip": address})
        hosts.append((host, gateway))
    routers = []
    for number, (links, routes) in enumerate(wanted["routers"]):
        router = net.addHost(f"nlr{number}", cls=Node, ip=None)
        for network, address in links:
            net.addLink(router, switches[network], params1={"ip": address})
        routers.append((router, routes))
    net.start()
    for host, gateway in hosts:
        host.cmd(f"ip route add default via {gateway}")
    for router, routes in routers:
        router.cmd("sysctl -w net.ipv4.ip_forward=1")
        for block, hop in routes:
            router.cmd(f"ip route add {block} via {hop}")
    built = time.perf_counter() - began
    print(json.dumps({"built": built, "pids": [host.pid for host, _ in hosts]}), flush=True)
    for line in sys.stdin:
        if line.strip() == "pingall":
            began = time.perf_counter()
            lost = net.ping([host for host, _ in hosts], timeout="1")
            print(json.dumps({"pinged": time.perf_counter() - began, "lost": lost}), flush=True)
    net.stop()


if __name__ == "__main__":
    main()
