"""What input from outside costs: no faster than linearly more for more of it, whatever its shape.

Every case makes an input of a size, and the work on it is measured for the sizes n, 2n and 4n: processor time of this
thread, the best of several runs, without the garbage collector. The promise is

    cost(2n) <= 2 * TOLERANCE * cost(n)    and    cost(4n) <= 4 * TOLERANCE * cost(n)

What is quadratic takes 16 times as much for 4n, so a tolerance of 2.2 tells the two apart, and leaves room for a busy
machine. What takes less than FLOOR counts as FLOOR: no case is decided by noise. Where it looks
wrong it is measured again, since a busy machine can only make a run slower; what is really quadratic stays so.

The sizes are below the limits where there are any, so that the work itself is measured and not the refusal.
"""

import asyncio
import functools
import gc
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from netloom.errors import NetloomError
from netloom.front.api.app import Api
from netloom.front.api.auth import tokens
from netloom.front.api.auth.identity import AnyOf, Attributes, Authorizer, Credentials, Identity
from netloom.front.api.http.exchange import CONNECTION
from netloom.front.api.http.limits import Limits
from netloom.front.api.http.negotiation import Media, Output, negotiate
from netloom.front.api.http.paths import Routes
from netloom.front.api.merge import apply, fields, patch
from netloom.front.api.output import protobuf_kinds, tables
from netloom.front.api.output.forms import View
from netloom.front.api.verbs import batches, streams
from netloom.front.vtep import arguments as vtep_arguments
from netloom.front.vtep import routes as vtep_routes
from netloom.model import codec
from netloom.model.registry import KINDS, NETWORK_ATTACHMENT, NODE
from netloom.model.schemas import checks, validation
from netloom.model.schemas.schema import tree
from netloom.model.topology import reading as topology_reading
from netloom.model.values import selectors
from netloom.protobuf import bytes_field
from netloom.store.memory import MemoryStore
from tests.front.serving import GROUP, attachment
from tests.support.tracing import untraced

pytestmark = pytest.mark.slow

TOLERANCE = 2.2
FLOOR = 0.0008
"""Seconds."""
RUNS, MORE_RUNS = 3, 12

Work = Callable[[], object]


class Case(NamedTuple):
    """Something that takes input."""

    name: str
    size: int
    """n."""
    make: Callable[[int], Work]
    """Returns the work on an input of a size; making the input is not measured."""


CASES: list[Case] = []


def case(name: str, size: int, make: Callable[[int], Work]) -> None:
    CASES.append(Case(name, size, make))


def shaped(name: str, size: int, words: str, make: Callable[[str], Work]) -> None:
    """Add a case for each word: the input is that word over and over, of so many characters."""
    for word in words.split(" "):
        text = word.encode().decode("unicode_escape")
        case(f"{name} of {word}", size, functools.partial(_repeated, text, make))


def _repeated(word: str, make: Callable[[str], Work], n: int) -> Work:
    return make((word * n)[:n])


def seconds(work: Work, runs: int) -> float:
    """Return the processor time of some work, the best of several runs."""
    best = float("inf")
    gc.collect()
    gc.disable()
    try:
        with untraced():
            for _ in range(runs):
                began = time.thread_time()
                with suppress(NetloomError, ValueError):
                    work()
                best = min(best, time.thread_time() - began)
    finally:
        gc.enable()
    return max(best, FLOOR)


# Selectors, paths, headers, tokens


def _labels(text: str) -> Work:
    return lambda: selectors.selector(text)


def _fields(text: str) -> Work:
    return lambda: selectors.selector("", text)


shaped(
    "label selector", 2000, r", ( ) a, a\x20in\x20( (, ), ! = \x20 a=b, a\x20notin\x20(b), b a\x20in\x20(b,c", _labels
)
shaped("field selector", 2000, r", = \\ \\, a= metadata.name=a, ! \x20 metadata.name!=a\\,", _fields)
case("label selector: one set", 2000, lambda n: _labels(f"a in ({('b,' * n)[: n - 8]}b)"))

ROUTES = Routes(KINDS)


def _parse(path: str, query: str = "") -> Work:
    return lambda: ROUTES.parse("GET", path, query).options.selector


shaped("path", 7500, r"/ %41 a /a . %2F", lambda text: _parse(f"{GROUP}/{text}"))
shaped("query", 7500, r"& a=b& = %41 + labelSelector=,& %", lambda text: _parse(f"{GROUP}/networks", text))
case("query: one label selector", 2000, lambda n: _parse(f"{GROUP}/networks", "labelSelector=" + "," * n))
shaped("Accept", 15000, r", ; a/b; a/b;q=1, = \x20", lambda text: functools.partial(negotiate, text))


def _tokens(n: int) -> Work:
    return functools.partial(tokens.parse, "".join(tokens.line(str(i), "a", ["b"]) for i in range(n)))


case("tokens file", 2000, _tokens)
case("tokens file: one line of words", 20000, lambda n: lambda: tokens.parse("sha256:00 " + "a " * n))
case("tokens file: one line of roles", 20000, lambda n: lambda: tokens.parse("sha256:" + "0" * 64 + " a " + "b," * n))


# JSON and YAML


def _json(text: bytes) -> Work:
    return lambda: codec.decode_value(text)


case("JSON: wide list", 20000, lambda n: _json(b"[" + b"1," * n + b"1]"))
case("JSON: list of lists", 20000, lambda n: _json(b"[" + b"[]," * n + b"[]]"))
case("JSON: wide object", 20000, lambda n: _json(json.dumps({str(i): i for i in range(n)}).encode()))
case("JSON: one key, many times", 20000, lambda n: _json(b"{" + b'"a":1,' * n + b'"a":1}'))
case("JSON: escapes", 200_000, lambda n: _json(b'"' + b"\\u0041" * (n // 6) + b'"'))
case("JSON: deep", 20000, lambda n: _json(b"[" * n + b"]" * n))
case("JSON: brackets only", 20000, lambda n: _json(b"[" * n))
case("JSON: quotes only", 200_000, lambda n: _json(b'"' * n))
case("JSON: space", 200_000, lambda n: _json(b" " * n + b"{}"))


def _yaml(text: str) -> Work:
    return lambda: codec.decode_value(text.encode(), "application/yaml")


shaped(
    "YAML",
    12_000,
    r"-\x20a\n a\n [ { ] -\x20 ?\x20 :\x20 ---\n &a\x20 *a\x20 !a\x20 \" ' #\n |\n\x20 {a, -\x20[a]\n "
    r"-\x20{a:\x20b}\n %a\n \t -\x20&a\x20b\n-\x20*a\n , \\",
    _yaml,
)
case("YAML: wide mapping", 2000, lambda n: _yaml("".join(f"k{i}: v\n" for i in range(n))))
case(
    "YAML: merged mappings",
    600,
    lambda n: _yaml("a: &a {b: c}\nd:\n" + "".join(f"  k{i}: {{<<: *a}}\n" for i in range(n))),
)
case("YAML: one long text", 100_000, lambda n: _yaml("a: " + "b " * n))
case("YAML: one long quoted text", 100_000, lambda n: _yaml('a: "' + "\\x41" * n + '"'))
case(
    "YAML: aliases of aliases",
    16,
    lambda n: _yaml("a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i},*a{i}]\n" for i in range(n))),
)

YAML = View(NETWORK_ATTACHMENT, Output(Media.YAML))


# The VTEP API


def _vtep(body: Any) -> Work:
    text = json.dumps(body).encode()
    return lambda: vtep_arguments.checked("add_client", vtep_routes.decoded(text))


def _vtep_client(**given: Any) -> Work:
    return _vtep({"vni": 10, "port": "vm1", "mac": "02:ac:10:ff:00:12", "ip": "192.168.222.12"} | given)


shaped("VTEP path", 7500, r"/ %41 a /a . : 0", lambda text: lambda: vtep_routes.match("GET", f"/vtep/networks/{text}"))
case("VTEP body: unknown keys", 5000, lambda n: _vtep({str(i): i for i in range(n)}))
case("VTEP body: a long number", 100_000, lambda n: _vtep_client(vni="1" * n))
case("VTEP body: a long hexadecimal number", 100_000, lambda n: _vtep_client(vni="0x" + "f" * n))
case("VTEP body: a long MAC address", 100_000, lambda n: _vtep_client(mac="00:" * n))
case("VTEP body: a long IP address", 100_000, lambda n: _vtep_client(ip="0:" * n))
case("VTEP body: a long port", 100_000, lambda n: _vtep_client(port="p" * n))


# Topology files


def _read(text: str | bytes) -> Work:
    return functools.partial(topology_reading.read, text.encode() if isinstance(text, str) else text)


def _lines(n: int, line: str) -> str:
    return "".join(line.replace("%", str(i)) for i in range(n))


def _aliased(n: int, item: str) -> str:
    """Return n items of a list that repeat a text, or a key, of 1000 n characters."""
    return f"- {{name: &x {'a' * n * 1000}, extra: &y {{? {'b' * n * 1000} : 1}}}}\n" + f"- {item}\n" * n


MAPPED = "name: a\nhosts: [{name: h}]\nrouters: [{name: r}]\nnetworks:\n"
shaped(
    "topology file",
    12_000,
    r"a:\n -\x20a\n {a: [{ \n \x20\n #\n Host\x20a\n Host\x20a\n\x20ProxyJump\x20b\n hosts:\n <<:\x20 ' \t "
    r"INSERT\x20INTO\x20 COPY\x20",
    _read,
)
case("topology file: 3 MB of comments", 700_000, lambda n: _read(b"#\n" * (n // 2)))
case("topology file: 3 MB of blank lines", 700_000, lambda n: _read(b"\n" * n))
case("topology file: one long text", 700_000, lambda n: _read("name: " + "a" * n))
case("topology file: unknown keys", 4000, lambda n: _read("name: a\n" + _lines(n, "k%: 1\n")))
case("topology file: one key, many times", 4000, lambda n: _read("name: a\n" + "groups: []\n" * n))
case("topology file: more hosts than allowed", 4000, lambda n: _read("name: a\nhosts:\n" + "- {name: 1}\n" * n))
case("topology file: hosts", 128, lambda n: _read("name: a\nhosts:\n" + _lines(n, "- {name: h%}\n")))
case("topology file: hosts of one name", 128, lambda n: _read("name: a\nhosts:\n" + "- {name: h}\n" * n))
case("topology file: wrong hosts", 128, lambda n: _read("name: a\nhosts:\n" + "- {name: [1], flavor: {}}\n" * n))
case("topology file: networks", 64, lambda n: _read(MAPPED + _lines(n, "- {name: n%, cidr: 10.%.0.0/24}\n")))
case("topology file: nested networks", 64, lambda n: _read(MAPPED + _lines(n, "- {name: n%, cidr: 0.0.0.0/%}\n")))
case(
    "topology file: mappings",
    256,
    lambda n: _read(
        MAPPED + "- {name: n, cidr: 10.0.0.0/8}\nnet_mappings:\n" + "- {host: h, network: n, ip: 10.0.0.1}\n" * n
    ),
)
case("topology file: groups", 64, lambda n: _read("name: a\ngroups:\n" + _lines(n, "- {name: g%, nodes: [a, a, b]}\n")))
case(
    "topology file: groups of many hosts",
    64,
    lambda n: _read(
        "name: a\nhosts:\n"
        + _lines(2 * n, "- {name: h%}\n")
        + "groups:\n"
        + _lines(n, f"- {{name: g%, nodes: [{'h, ' * 90}]}}\n")
    ),
)
case("topology file: aliases", 600, lambda n: _read("name: a\nx: &x {b: c}\nhosts:\n" + "- *x\n" * n))
case("topology file: aliases of a long text", 100, lambda n: _read("name: a\nhosts:\n" + _aliased(n, "*x")))
case("topology file: aliases of a list of a long text", 100, lambda n: _read("name: a\nhosts:\n" + _aliased(n, "[*x]")))
case("topology file: hosts with a long name", 100, lambda n: _read("name: a\nhosts:\n" + _aliased(n, "{name: *x}")))
case("topology file: merges of a long key", 100, lambda n: _read("name: a\nhosts:\n" + _aliased(n, "{<<: *y}")))
case("topology file: a deep key", 20_000, lambda n: _read("name: a\n" + "k" * n + ":\n  " + "k" * n + ": 1\n"))
case(
    "sandbox JSON: routes",
    1000,
    lambda n: _read(
        '{"networks": {"networks": []}, "routes": {"routes": ['
        + '{"lan1": "a", "lan2": "b"},' * n
        + '{"lan1":"a","lan2":"b"}]}}'
    ),
)
case(
    "KYPODB: rows of COPY",
    3000,
    lambda n: _read("COPY node (name, measurable_id) FROM stdin;\n" + _lines(n, "h%\t%\n") + "\\.\n"),
)
case(
    "KYPODB: rows of INSERT",
    3000,
    lambda n: _read("INSERT INTO node (name, measurable_id) VALUES " + _lines(n, "('h%',%),") + "(1,2);"),
)
case(
    "KYPODB: statements", 1500, lambda n: _read(_lines(n, "INSERT INTO node (name, measurable_id) VALUES ('h%',%);\n"))
)
case("KYPODB: quotes", 50_000, lambda n: _read("INSERT INTO node (name, measurable_id) VALUES " + "'" * n))
case(
    "KYPODB: statements without an end",
    1500,
    lambda n: _read("INSERT INTO node (name, measurable_id) VALUES (1,2)\n" * n),
)
case("KYPODB: COPY without an end", 1500, lambda n: _read("COPY node (name, measurable_id) FROM stdin;\n" * n))
case("SSH config: machines", 1000, lambda n: _read(_lines(n, "Host h%\n ProxyJump h0\n")))
case("SSH config: names of a machine", 20_000, lambda n: _read("Host " + "a-b " * n))
case("SSH config: one long command", 20_000, lambda n: _read("Host a\n ProxyCommand ssh " + "-o a " * n))


# Validation


def _admitted(document: dict[str, Any]) -> Work:
    text = json.dumps(document)
    return lambda: validation.admit(NETWORK_ATTACHMENT, json.loads(text))


def _metadata(**more: Any) -> dict[str, Any]:
    document = attachment("a", port={"type": "internal"})
    document["metadata"] |= more
    return document


def _with_spec(more: dict[str, Any], name: str = "a") -> dict[str, Any]:
    document = attachment(name)
    document["spec"] |= more
    return document


def _anagrams(n: int) -> dict[str, int]:
    rng = random.Random(1)
    words = ["".join(rng.sample(word, len(word))) for word in ("securityProfiles", "addresses", "network", "subnets")]
    return {f"{words[i % 4]}{i}": 1 for i in range(n)}


case("unknown fields: anagrams", 4000, lambda n: _admitted(_with_spec(_anagrams(n))))
case("unknown fields at the top", 4000, lambda n: _admitted(attachment("a") | _anagrams(n)))
case("unknown fields: one long name", 200_000, lambda n: _admitted(_with_spec({"x" * n: 1})))
case("labels", 250, lambda n: _admitted(_metadata(labels={f"l{i}": "v" for i in range(n)})))
case("labels: wrong ones", 250, lambda n: _admitted(_metadata(labels={f"-{i}": "-" for i in range(n)})))
case("labels: more than allowed", 20000, lambda n: _admitted(_metadata(labels={f"l{i}": "v" for i in range(n)})))
case("annotations", 250, lambda n: _admitted(_metadata(annotations={f"a{i}": "v" * 100 for i in range(n)})))
case("finalizers", 250, lambda n: _admitted(_metadata(finalizers=[f"a.b/f{i}" for i in range(n)])))
case("lists: wrong items", 16, lambda n: _admitted(attachment("a", securityProfiles=["-"] * n)))
case("lists: longer than allowed", 20000, lambda n: _admitted(attachment("a", securityProfiles=["-"] * n)))
case("a value of another type", 100_000, lambda n: _admitted(_with_spec({"network": ["a"] * n})))


@functools.cache
def _patterns() -> tuple[str, ...]:
    """Return the patterns of all schemas."""

    def walk(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if isinstance(node.get("pattern"), str):
                yield node["pattern"]
            for inner in node.values():
                yield from walk(inner)
        elif isinstance(node, list | tuple):
            for inner in node:
                yield from walk(inner)

    return tuple(dict.fromkeys(pattern for kind in KINDS for pattern in walk(tree(kind))))


def _matched(text: str) -> Work:
    matchers = [checks.fullmatch(pattern) for pattern in _patterns()]
    text += "\0"

    def work() -> None:
        for matches in matchers:
            matches(text)

    return work


shaped("patterns of all schemas", 1000, r"a - . a. a- 1 1. 0 : a: / fe80: 1, \x20 @", _matched)


# The three patches, and server-side apply


def _patched(change: Any, document: dict[str, Any] | None = None) -> Work:
    what = document or _metadata()
    apply_patch = patch.json_patch if isinstance(change, list) else patch.merge_patch
    return lambda: apply_patch(what, change)


def _add(path: str, value: Any = 1) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def _list_then(n: int, operation: dict[str, Any]) -> Work:
    """Return a patch that makes a long list, and works on it as often as it is long."""
    return _patched([_add("/x", [1] * (n * 10)), *[operation] * n])


case("merge patch: wide", 20000, lambda n: _patched({"spec": {str(i): 1 for i in range(n)}}))
case("merge patch: nulls", 20000, lambda n: _patched({"spec": {str(i): None for i in range(n)}}))
case("JSON patch: inserts before a list", 800, lambda n: _list_then(n, _add("/x/0")))
case("JSON patch: removals before a list", 800, lambda n: _list_then(n, {"op": "remove", "path": "/x/0"}))
case("JSON patch: appends", 800, lambda n: _list_then(n, _add("/x/-")))
case("JSON patch: tests", 800, lambda n: _list_then(n, {"op": "test", "path": "/x", "value": [1]}))
case(
    "JSON patch: copies",
    20,
    lambda n: _patched([_add("/x", [1] * 20), *[{"op": "copy", "from": "/x", "path": "/x/-"}] * n]),
)
case(
    "JSON patch: moves",
    2000,
    lambda n: _patched(
        [_add("/x", [1]), *[{"op": "move", "from": "/x", "path": "/y"}, {"op": "move", "from": "/y", "path": "/x"}] * n]
    ),
)
case("JSON patch: long pointers", 50_000, lambda n: _patched([_add("/" * n)]))
case("JSON patch: escaped pointers", 50_000, lambda n: _patched([_add("/" + "~1" * n)]))

NOW = "2026-11-15T09:00:00Z"


def _entry(manager: str, owned: dict[str, Any], operation: str = "Update") -> dict[str, Any]:
    version = NETWORK_ATTACHMENT.api_version
    named = {"manager": manager, "operation": operation, "apiVersion": version, "time": NOW}
    return named | {"fieldsType": "FieldsV1", "fieldsV1": owned}


def _applied(live: dict[str, Any] | None, config: dict[str, Any]) -> Work:
    return lambda: apply.applied(NETWORK_ATTACHMENT, live, config, manager="me", now=NOW, force=True)


def _updated(document: dict[str, Any]) -> Work:
    live = _metadata(uid="u", managedFields=[_entry("x", {"f:spec": {}})])
    return lambda: apply.updated(NETWORK_ATTACHMENT, live, document, manager="me", now=NOW)


def _words(n: int) -> list[str]:
    return [f"p{i}" for i in range(n)]


case("apply: a new wide object", 4000, lambda n: _applied(None, _metadata(labels=dict.fromkeys(_words(n), "v"))))
case("apply: a new list", 4000, lambda n: _applied(None, attachment("a", securityProfiles=_words(n))))
case(
    "apply: a list over the same",
    4000,
    lambda n: _applied(attachment("a", securityProfiles=_words(n)), attachment("a", securityProfiles=_words(n))),
)
case(
    "apply: a list over the same, turned round",
    4000,
    lambda n: _applied(attachment("a", securityProfiles=_words(n)), attachment("a", securityProfiles=_words(n)[::-1])),
)
case(
    "apply: among many appliers",
    1000,
    lambda n: _applied(
        _metadata(
            labels=dict.fromkeys(_words(n), "v"),
            managedFields=[
                _entry("me", {"f:metadata": {"f:labels": {"f:p0": {}}}}, "Apply"),
                *(_entry(f"m{i}", {"f:metadata": {"f:labels": {f"f:p{i}": {}}}}, "Apply") for i in range(n)),
            ],
        ),
        _metadata(),
    ),
)
case(
    "managedFields: many managers",
    1000,
    lambda n: _updated(_metadata(managedFields=[_entry(f"m{i}", {f"f:x{i}": {}}) for i in range(n)])),
)
case(
    "managedFields: wide",
    4000,
    lambda n: _updated(_metadata(managedFields=[_entry("m", {f"f:x{i}": {} for i in range(n)})])),
)
case(
    "fieldsV1: one element in many spellings",
    1000,
    lambda n: functools.partial(fields.decode, {"v:" + " " * i + "1": {f"f:{i}": {}} for i in range(n)}),
)
case("fieldsV1: deep", 4000, lambda n: functools.partial(fields.decode, _nested(n)))


def _nested(n: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for _ in range(n):
        out = {"f:a": out}
    return out


# Reviews, batches, streams, tables: as bytes


def _protobuf(kind: str, body: bytes) -> Work:
    version = {"Event": "v1", "Lease": "coordination.k8s.io/v1"}.get(kind, "authorization.k8s.io/v1")
    enveloped = protobuf_kinds.envelope(version, kind, body)
    return lambda: protobuf_kinds.decode(enveloped, version, kind)


for kind in ("Event", "Lease", "SelfSubjectAccessReview"):
    for field in (1, 2, 3, 15):
        case(
            f"protobuf {kind}: field {field} over and over",
            3000,
            functools.partial(
                lambda kind, field, n: _protobuf(kind, bytes_field(field, b"\x0a\x01a") * n), kind, field
            ),
        )
case("batch: empty requests", 20000, lambda n: lambda: batches._read(b'{"requests":[' + b"{}," * n + b"{}]}", 256))
case("batch: brackets", 200_000, lambda n: lambda: batches._read(b"[" * n, 256))
case("stream: one line", 200_000, lambda n: lambda: streams._decode(b'{"begin":1,"path":"' + b"," * n + b'"}'))


# Every verb, from the request to the answer


class Everybody(Authorizer):
    """Allows everything."""

    asks_others = False

    async def allows(self, who: Identity, what: Attributes) -> bool:
        return True

    def version(self, who: Identity) -> object | None:
        return self


class Admin:
    """Knows one caller."""

    async def authenticate(self, offered: Credentials) -> Identity | None:
        return Identity("admin", (), ("netloom:admin",))


class Line:
    """A connection on which all is written at once."""

    certificate = None
    on_lost: Callable[[], None] | None = None
    deadline = 0.0

    def push(self, chunk: bytes) -> bool:
        return True

    def abort(self) -> None:
        pass


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@pytest.fixture(scope="module", autouse=True)
def loop() -> Iterator[None]:
    yield
    _loop().close()


LIMITS = Limits(batch=100_000, watch_seconds=0.0)


class World:
    """The API over a store in memory, asked without a network."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.api = Api(self.store, authenticator=AnyOf(Admin()), authorizer=Everybody(), limits=LIMITS)

    def ask(
        self, method: str, target: str, body: bytes = b"", media: str = "application/json", accept: str = ""
    ) -> int:
        """Return the code of an answer."""
        path, _, query = target.partition("?")
        headers = [(b"content-type", media.encode()), (b"accept", accept.encode())]
        scope = {"method": method, "headers": headers, "raw_path": path.encode(), "query_string": query.encode()}
        sent = iter([{"type": "http.request", "body": body, "more_body": False}])
        codes: list[int] = []

        async def receive() -> dict[str, Any]:
            if (message := next(sent, None)) is not None:
                return message
            for _ in range(8):  # What a stream was told is done before the stream is over.
                await asyncio.sleep(0)
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            if "status" in message:
                codes.append(message["status"])

        _loop().run_until_complete(self.api(scope | {"extensions": {CONNECTION: Line()}}, receive, send))
        return codes[0]

    def asking(self, *words: Any, **more: Any) -> Work:
        return lambda: self.ask(*words, **more)


ALL = f"{GROUP}/networkattachments"
IN = f"{GROUP}/namespaces/default/networkattachments"


def _world(objects: int = 1) -> World:
    world = World()
    for i in range(objects):
        document = attachment(f"a{i}", port={"type": "internal"})
        assert world.ask("POST", IN, json.dumps(document).encode()) == 201
    return world


def _asked(*words: Any, objects: int = 1, **more: Any) -> Work:
    return _world(objects).asking(*words, **more)


def _wide(n: int) -> bytes:
    return json.dumps(_with_spec(_anagrams(n), "a0")).encode()


def _sent(verb: str, where: str, media: str = "application/json") -> Callable[[int], Work]:
    return lambda n: _asked(verb, where, _wide(n), media)


case("create", 3000, _sent("POST", f"{IN}?dryRun=All"))
case("update", 3000, _sent("PUT", f"{IN}/a0"))
case("update of the status", 3000, _sent("PUT", f"{IN}/a0/status"))
case("delete", 3000, _sent("DELETE", f"{IN}/a0"))
case("delete of the collection", 3000, _sent("DELETE", IN))
case("PATCH merge-patch+json", 3000, _sent("PATCH", f"{IN}/a0", "application/merge-patch+json"))
case("PATCH apply-patch+yaml", 3000, _sent("PATCH", f"{IN}/a0?fieldManager=x", "application/apply-patch+yaml"))
case(
    "PATCH json-patch+json",
    1500,
    lambda n: _asked(
        "PATCH",
        f"{IN}/a0",
        json.dumps([_add("/spec/x", [1] * n), *[_add("/spec/x/0")] * n]).encode(),
        "application/json-patch+json",
    ),
)
case(
    "PATCH: YAML",
    1500,
    lambda n: _asked("PATCH", f"{IN}/a0?fieldManager=x", b"a:\n" + b"- b\n" * n, "application/apply-patch+yaml"),
)
case("GET of a label selector", 2000, lambda n: _asked("GET", f"{ALL}?labelSelector={',' * n}"))
case("WATCH of a label selector", 2000, lambda n: _asked("GET", f"{ALL}?watch=1&labelSelector={',' * n}"))
case("DELETE by a label selector", 2000, lambda n: _asked("DELETE", f"{IN}?labelSelector={',' * n}"))
case(
    "batch of selectors",
    2000,
    lambda n: _asked(
        "POST",
        batches.PATH,
        json.dumps({"requests": [{"method": "GET", "path": f"{IN}/a0?labelSelector={',' * n}"}] * 4}).encode(),
    ),
)
case(
    "batch of many",
    100,
    lambda n: _asked(
        "POST", batches.PATH, json.dumps({"requests": [{"method": "GET", "path": f"{IN}/a0"}] * n}).encode()
    ),
)
case(
    "stream of selectors",
    2000,
    lambda n: _asked(
        "POST",
        streams.PATH,
        b'{"begin":1,"path":"%b?watch=1&resourceVersion=1&labelSelector=%b"}\n' % (ALL.encode(), b"," * n),
    ),
)
case("stream of many", 500, lambda n: _asked("POST", streams.PATH, b'{"begin":1,"path":"/x"}\n' * n))
case(
    "review of a long path",
    12000,
    lambda n: _asked(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        json.dumps({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/" * n}}}).encode(),
    ),
)
case(
    "review of a field selector",
    2000,
    lambda n: _asked(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        json.dumps(
            {
                "spec": {
                    "resourceAttributes": {
                        "group": "netloom.dev",
                        "resource": "networks",
                        "fieldSelector": {"rawSelector": "," * n},
                    }
                }
            }
        ).encode(),
    ),
)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
case("list", 60, lambda n: _asked("GET", ALL, objects=n))
case("list as a Table", 60, lambda n: _asked("GET", ALL, objects=n, accept=TABLE))
case("list as YAML", 25, lambda n: _asked("GET", ALL, objects=n, accept="application/yaml"))
case(
    "a Table's dates",
    100_000,
    lambda n: (
        lambda: tables.row(
            NODE, {"metadata": {"name": "a", "creationTimestamp": "2026-11-15T09:00:00." + "0" * n + "Z"}}, now=0.0
        )
    ),
)


@pytest.mark.parametrize("one", CASES, ids=[one.name for one in CASES])
def test_the_cost_of_input_grows_no_faster_than_its_size(one: Case) -> None:
    work = [one.make(one.size * factor) for factor in (1, 2, 4)]
    for runs in (RUNS, MORE_RUNS, MORE_RUNS):
        base, double, fourfold = (seconds(some, runs) for some in work)
        linear = double <= 2 * TOLERANCE * base and fourfold <= 4 * TOLERANCE * base
        if linear:
            break
    assert linear, (
        f"{one.name}: {base * 1000:.1f} ms for {one.size}, {double * 1000:.1f} ms for twice and "
        f"{fourfold * 1000:.1f} ms for four times as much; "
        f"at most {2 * TOLERANCE:.1f} and {4 * TOLERANCE:.1f} times as much is linear"
    )


def test_what_is_quadratic_is_found_out() -> None:
    """The measure itself: work that is known to be quadratic does not pass."""

    def quadratic(n: int) -> Work:
        return lambda: [j for i in range(n) for j in range(i)]

    with pytest.raises(AssertionError, match="at most"):
        test_the_cost_of_input_grows_no_faster_than_its_size(Case("quadratic", 500, quadratic))
