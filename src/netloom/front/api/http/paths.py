"""From a request line to a `Request`: one regular grammar, made from the registry of kinds.

    /api/VERSION  or  /apis/GROUP/VERSION          [/watch] [/namespaces/NS] /PLURAL [/NAME [/status]]

Nothing here reads a body, a header or a store. Unknown query parameters are ignored, as in Kubernetes; a known one with
an invalid value is a `BadRequest` that names the valid values.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, unquote

from msgspec import Struct
from msgspec.structs import replace

from netloom.errors import BadRequest, MethodNotAllowed, NotFound, TooLarge
from netloom.front.api.auth.identity import Attributes, namespace_of
from netloom.front.api.http.limits import Limits
from netloom.front.api.schemas.served import Served
from netloom.model.kind import Kind
from netloom.model.schemas.validation import Unknown
from netloom.model.values.selectors import Requirement, Selector, field_requirements, label_requirements
from netloom.store.base import Propagation


class Verb(StrEnum):
    """The verb of a request, as authorization names it."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    DELETE = "delete"
    DELETE_COLLECTION = "deletecollection"


READS = frozenset({Verb.GET, Verb.LIST, Verb.WATCH})


class Match(StrEnum):
    """How to interpret `resourceVersion` on a list."""

    EXACT = "Exact"
    NOT_OLDER = "NotOlderThan"


class Include(StrEnum):
    """How much of the object each row of a Table carries."""

    OBJECT = "Object"
    METADATA = "Metadata"
    NONE = "None"


class Options(Struct, frozen=True, kw_only=True):
    """The query parameters, as values."""

    labels: str = ""
    """labelSelector, unparsed: `selector` parses it."""
    fields: tuple[Requirement, ...] = ()
    """fieldSelector."""
    limit: int | None = None
    token: str = ""
    revision: int | None = None
    match: Match | None = None
    bookmarks: bool = False
    initial: bool | None = None
    """sendInitialEvents."""
    timeout: int | None = None
    dry_run: bool = False
    manager: str = ""
    validation: Unknown = Unknown.REFUSE
    force: bool | None = None
    propagation: Propagation | None = None
    orphan: bool | None = None
    grace: int | None = None
    watch: bool = False
    include: Include = Include.METADATA

    @property
    def selector(self) -> Selector:
        """The selector of a list or watch.  Raises `BadRequest` if the label selector is not valid.

        Authorization needs the field selector at most, so label selectors are parsed only after it.
        """
        return Selector(label_requirements(self.labels), self.fields)


class Request(Struct, frozen=True):
    """A request for a resource."""

    verb: Verb
    kind: Kind
    namespace: str = ""
    """"" is all namespaces, or a cluster-scoped kind."""
    name: str = ""
    subresource: str = ""
    options: Options = Options()
    served: Served | None = None
    """The requested version of the kind, if it is not the stored one."""

    def attributes(self) -> Attributes:
        """Return the attributes for authorization, which needs no label selector; it is not parsed here."""
        namespace, fields = namespace_of(self.kind, self.namespace, self.name), Selector(fields=self.options.fields)
        return Attributes(self.verb, self.kind, namespace, self.name, self.subresource, fields)


Parsed = dict[tuple[str, str, str], Options]
"""Parsed queries by group and plural name of their kind."""
Reader = Callable[[str, str], object]
"""Parses one parameter: its key, for messages, and its text."""

DEFAULTS = Options()
MANAGER_BYTES = 128
"""As kube-apiserver: the length of a field manager's name is counted in bytes of UTF-8."""
_COLLECTION = {"GET": Verb.LIST, "POST": Verb.CREATE, "DELETE": Verb.DELETE_COLLECTION}
_OBJECT = {"GET": Verb.GET, "PUT": Verb.UPDATE, "PATCH": Verb.PATCH, "DELETE": Verb.DELETE}
_NAME_LIMIT = 253


def trimmed(path: str) -> str:
    """Return a path without trailing slashes where kube-apiserver accepts them: below /api, /apis/… and /version."""
    if path.startswith(("/api/", "/apis/", "/version/")) and not path.startswith("/apis//"):
        return path.rstrip("/")
    return path


class Routes:
    """The paths of all kinds."""

    def __init__(self, kinds: Iterable[Kind], *, longest: int = Limits().url) -> None:
        """`longest` is how many characters path and query may have together."""
        self._longest = longest
        self._roots: dict[tuple[str, str], dict[str, Kind]] = {}
        for kind in kinds:
            self._roots.setdefault((kind.group, kind.version), {})[kind.plural] = kind

    def parse(self, method: str, path: str, query: str, parsed: Parsed | None = None) -> Request:
        """Return the request.  `path` and `query` are still percent-encoded.

        `parsed` caches the queries of requests in one batch, which are often the same.
        """
        if len(path) + len(query) > self._longest:
            raise TooLarge(f"the path and query of a request may have at most {self._longest} characters")
        parts = [unquote(part) if "%" in part else part for part in trimmed(path).split("/")[1:]]
        kinds, parts = self._root(parts)
        watched = parts[:1] == ["watch"] and len(parts) > 1
        if watched:
            parts = parts[1:]
        namespace = ""
        if parts[:1] == ["namespaces"] and len(parts) > 2 and not _of_namespace(parts[2:], kinds):
            namespace = _checked(parts[1], "namespace")
            parts = parts[2:]
        kind = kinds.get(parts[0]) if 0 < len(parts) < 4 else None
        if kind is None or (namespace and not kind.namespaced):
            raise _missing()
        name, subresource = (*parts[1:], "", "")[:2]
        if (name or subresource) and kind.namespaced and not namespace:
            raise _missing()
        if not query:
            asked = DEFAULTS
        elif parsed is None:
            asked = options(kind, query)
        else:
            key = (kind.group, kind.plural, query)
            asked = parsed.get(key) or parsed.setdefault(key, options(kind, query))
        return _request(method, kind, namespace, name=name, subresource=subresource, asked=asked, watched=watched)

    def _root(self, parts: list[str]) -> tuple[dict[str, Kind], list[str]]:
        if parts[:1] == ["apis"] and len(parts) > 3:
            key, rest = (parts[1], parts[2]), parts[3:]
        elif parts[:1] == ["api"] and len(parts) > 2:
            key, rest = ("", parts[1]), parts[2:]
        else:
            raise _missing()
        if key not in self._roots:
            raise _missing()
        return self._roots[key], rest


def _of_namespace(rest: list[str], kinds: dict[str, Kind]) -> bool:
    """Whether the part after /namespaces/NAME is a sub-resource of that Namespace, and not a kind in it."""
    held = kinds.get("namespaces")
    return held is not None and len(rest) == 1 and rest[0] in held.subresources


def _request(
    method: str, kind: Kind, namespace: str, *, name: str, subresource: str, asked: Options, watched: bool
) -> Request:
    if name:
        _checked(name, "name")
    if subresource and subresource not in kind.subresources:
        raise _missing()
    verb = (_OBJECT if name else _COLLECTION).get(method)
    allowed = kind.subresources[subresource] if subresource else kind.verbs
    if verb is None or verb not in allowed or (watched and method != "GET"):
        raise _refused(method)
    if verb is Verb.CREATE and kind.namespaced and not namespace:
        raise _refused(method)
    if watched and name:
        asked = replace(asked, fields=(*asked.fields, *field_requirements(f"metadata.name={name}")))
    if watched or (verb is Verb.LIST and asked.watch):
        verb = Verb.WATCH
    if verb in (Verb.LIST, Verb.WATCH):
        check_list(asked, watch=verb is Verb.WATCH)
    return Request(verb, kind, namespace, name, subresource, asked)


def options(kind: Kind, query: str) -> Options:
    """Return the query parameters of a request for `kind`."""
    found = _pairs(query)
    values: dict[str, Any] = {}
    for key, text in found.items():
        reader = _READERS.get(key)
        if reader is not None and (text or key == "watch"):
            field, read = reader
            values[field] = read(key, text)
    fields = field_requirements(found.get("fieldSelector", ""), selectable=kind.selectable)
    return Options(labels=found.get("labelSelector", ""), fields=fields, **values)


def check_list(asked: Options, *, watch: bool) -> None:
    """Refuse combinations of options that are not valid for a list, or for a watch."""
    if asked.match is not None:
        if asked.revision is None and not (watch and asked.initial is not None):
            raise _forbids("resourceVersionMatch", "is forbidden unless resourceVersion is provided")
        if asked.match is Match.EXACT and asked.revision == 0:
            raise _forbids("resourceVersionMatch", '"Exact" is forbidden for resourceVersion "0"')
        if asked.token:
            raise _forbids("resourceVersionMatch", "is forbidden when continue is provided")
        if watch and asked.initial is None:
            raise _forbids("resourceVersionMatch", "is forbidden for watch unless sendInitialEvents is provided")
    if asked.token and asked.revision:
        raise BadRequest("specifying resource version is not allowed when using continue")
    if asked.initial is not None and not watch:
        raise _forbids("sendInitialEvents", "is forbidden for list")
    if asked.initial is not None and asked.match is not Match.NOT_OLDER:
        raise _forbids("sendInitialEvents", "requires setting resourceVersionMatch to NotOlderThan")


def _forbids(parameter: str, why: str) -> BadRequest:
    return BadRequest(f"{parameter}: Forbidden: {parameter} {why}")


def _pairs(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=64, errors="strict")
    except (ValueError, UnicodeDecodeError) as error:
        raise BadRequest(f"unable to parse the query: {error}") from None
    # The first value of a repeated key counts, as in Kubernetes.
    return dict(reversed(pairs))


def _switch(key: str, text: str) -> bool:
    if text.lower() in ("true", "1", "t", ""):
        return True
    if text.lower() in ("false", "0", "f"):
        return False
    raise BadRequest(f"{key}: Invalid value: {text[:64]!r}: must be true or false")


def _number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19) or int(text) >= 2**63:
        raise BadRequest(f"{key}: Invalid value: {text[:64]!r}: must be a whole number from 0 to 9223372036854775807")
    return int(text)


def _text(key: str, text: str) -> str:
    return text


def _limit(key: str, text: str) -> int | None:
    return _number(key, text) or None


def _dry_run(key: str, text: str) -> bool:
    if text != "All":
        raise BadRequest(f'{key}: Unsupported value: "{text[:64]}": supported values: "All"')
    return True


def manager(key: str, text: str) -> str:
    """Return a field manager's name, or raise `BadRequest`."""
    if len(text.encode("utf-8", "replace")) > MANAGER_BYTES:
        raise BadRequest(f"{key}: Too long: may not be more than {MANAGER_BYTES} bytes")
    if not text.isprintable():
        raise BadRequest(f"{key}: Invalid value: {text!r}: should only contain printable characters")
    return text


def program_name(user_agent: str) -> str:
    """Return the program at the beginning of a User-Agent: the default field manager."""
    printable = "".join(filter(str.isprintable, user_agent.partition("/")[0]))
    return printable.encode("utf-8", "replace")[:MANAGER_BYTES].decode(errors="ignore") or "unknown"


def _one_of(kinds: type[StrEnum]) -> Reader:
    def read(key: str, text: str) -> StrEnum:
        try:
            return kinds(text)
        except ValueError:
            known = ", ".join(f'"{value}"' for value in kinds)
            raise BadRequest(f'{key}: Unsupported value: "{text[:64]}": supported values: {known}') from None

    return read


_READERS: dict[str, tuple[str, Reader]] = {
    "watch": ("watch", _switch),
    "limit": ("limit", _limit),
    "continue": ("token", _text),
    "resourceVersion": ("revision", _number),
    "resourceVersionMatch": ("match", _one_of(Match)),
    "allowWatchBookmarks": ("bookmarks", _switch),
    "sendInitialEvents": ("initial", _switch),
    "timeoutSeconds": ("timeout", _number),
    "dryRun": ("dry_run", _dry_run),
    "fieldManager": ("manager", manager),
    "fieldValidation": ("validation", _one_of(Unknown)),
    "force": ("force", _switch),
    "propagationPolicy": ("propagation", _one_of(Propagation)),
    "orphanDependents": ("orphan", _switch),
    "gracePeriodSeconds": ("grace", _number),
    "includeObject": ("include", _one_of(Include)),
}


def _checked(name: str, what: str) -> str:
    if "/" in name or "%" in name or name in (".", ".."):
        raise BadRequest(f"invalid resource {what} {name[:64]!r}: may not contain '/' or '%', nor be '.' or '..'")
    if len(name) > _NAME_LIMIT:
        raise BadRequest(f"invalid resource {what} {name[:64]!r}...: must be no more than {_NAME_LIMIT} characters")
    if not name:
        raise _missing()
    return name


def _missing() -> NotFound:
    return NotFound("the server could not find the requested resource")


def _refused(method: str) -> MethodNotAllowed:
    return MethodNotAllowed(f"the server does not allow this method on the requested resource: {method:.16}")
