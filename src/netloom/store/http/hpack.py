"""HTTP/2's header compression (RFC 7541): the part that a client needs.

Our own headers are few: they are encoded as literals. A server's headers are decoded in full, with
Huffman codes and the dynamic table, because the state of that table must be followed.
"""

from functools import cache, lru_cache

Header = tuple[str, str]

_NAMES = """
accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control
content-disposition content-encoding content-language content-length content-location content-range content-type cookie
date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified
link location max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after server set-cookie
strict-transport-security transfer-encoding user-agent vary via www-authenticate
"""
_STATIC: tuple[Header, ...] = (
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    *((":status", code) for code in ("200", "204", "206", "304", "400", "404", "500")),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    *((name, "") for name in _NAMES.split()),
)
_HUFFMAN_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b0806060605050506060606060606"
    "07080f060c0a0d06070707070707070707070707070707070707070707070807080d130d0e060f050605060506060605070706060605060706"
    "05050607070707070f0b0e0d1c141614141616161716171717171718171818161718171717171516171617171816151416161717151716161815"
    "161717151516151716171714161616171616171a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b1418141516151517"
    "1616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a"
)
"""The length of each byte's code.  The codes follow from it: they are canonical."""
TABLE_SIZE = 4096
_ENTRY = 32
_LONGEST = 64 * 1024


class HpackError(Exception):
    """The bytes are no header block."""


def encode(headers: list[Header]) -> bytes:
    """Return headers as literals without Huffman codes, which every HTTP/2 peer reads."""
    out = bytearray()
    for name, value in headers:
        out += b"\0" + _text(name) + _text(value)
    return bytes(out)


def _text(text: str) -> bytes:
    data = text.encode()
    return _integer(len(data), 7) + data


def _integer(value: int, bits: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes((value,))
    out = bytearray((most,))
    value -= most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    out.append(value)
    return bytes(out)


class Decoder:
    """Decoder of one connection's header blocks, which must be decoded in order."""

    def __init__(self) -> None:
        self._table: list[Header] = []
        self._size = 0
        self._limit = TABLE_SIZE

    def decode(self, block: bytes) -> list[Header]:
        """Return the headers of one block."""
        try:
            return self._decode(block)
        except (IndexError, UnicodeDecodeError, KeyError) as error:
            raise HpackError(f"headers cannot be read: {error!r}") from error

    def _decode(self, block: bytes) -> list[Header]:
        found: list[Header] = []
        at = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                index, at = _read_integer(block, at, 7)
                found.append(self._entry(index))
            elif first & 0x40:
                header, at = self._literal(block, at, 6)
                self._keep(header)
                found.append(header)
            elif first & 0x20:
                self._limit, at = _read_integer(block, at, 5)
                if self._limit > TABLE_SIZE:
                    raise HpackError("the peer's header table is larger than was agreed")
                self._shrink()
            else:
                header, at = self._literal(block, at, 4)
                found.append(header)
        return found

    def _entry(self, index: int) -> Header:
        if index == 0:
            raise HpackError("there is no header 0")
        return _STATIC[index - 1] if index <= len(_STATIC) else self._table[index - len(_STATIC) - 1]

    def _literal(self, block: bytes, at: int, bits: int) -> tuple[Header, int]:
        index, at = _read_integer(block, at, bits)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _read_text(block, at)
        value, at = _read_text(block, at)
        return (name, value), at

    def _keep(self, header: Header) -> None:
        self._table.insert(0, header)
        self._size += _cost(header)
        self._shrink()

    def _shrink(self) -> None:
        while self._size > self._limit:
            self._size -= _cost(self._table.pop())


def _cost(header: Header) -> int:
    return len(header[0]) + len(header[1]) + _ENTRY


def _read_integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if value > _LONGEST:
            raise HpackError("a number among the headers is too large")
        if not byte & 0x80:
            return value, at


def _read_text(block: bytes, at: int) -> tuple[str, int]:
    coded = block[at] & 0x80
    length, at = _read_integer(block, at, 7)
    data = block[at : at + length]
    if len(data) != length:
        raise HpackError("a Huffman-coded header string is truncated")
    return (_unpacked(data) if coded else data.decode("latin-1")), at + length


@cache
def _codes() -> dict[tuple[int, int], int]:
    """Return which byte each (length, code) stands for."""
    found: dict[tuple[int, int], int] = {}
    code = before = 0
    for symbol in sorted(range(256), key=lambda symbol: (_HUFFMAN_LENGTHS[symbol], symbol)):
        length = _HUFFMAN_LENGTHS[symbol]
        code <<= length - before
        found[length, code] = symbol
        code, before = code + 1, length
    return found


@lru_cache(maxsize=256)
def _unpacked(data: bytes) -> str:
    codes = _codes()
    out = bytearray()
    code = length = 0
    for byte in data:
        for bit in range(7, -1, -1):
            code = code << 1 | byte >> bit & 1
            length += 1
            if (symbol := codes.get((length, code))) is not None:
                out.append(symbol)
                code = length = 0
    if length > 7 or code != (1 << length) - 1:
        raise HpackError("a header string is truncated")
    return out.decode("latin-1")
