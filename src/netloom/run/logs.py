"""Logs of the processes: one JSON object per line for machines, one readable line for a terminal.

Standard logging only, so that libraries log the same way. The keys of `extra={...}` become fields of the JSON line and
`key=value` in the text. Only the imperative shell logs, one line per decision. Bodies and headers are never logged, and
a bearer token in a message is redacted here all the same.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TextIO

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_SECRET = re.compile(r"(?i)(bearer\s+|token[\"']?\s*[:=]\s*[\"']?)[A-Za-z0-9._~+/=-]{8,}")


def configure(*, level: str = "info", form: str = "auto", stream: TextIO | None = None) -> None:
    """Send all logs to `stream` (default: standard error).  `form` is json, text, or auto: text on a terminal."""
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    text = form == "text" or (form == "auto" and out.isatty())
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # asyncio's debug lines (the selector it uses) are no decision of ours.
    logging.getLogger("asyncio").setLevel(logging.WARNING)


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _clean(record.getMessage()),
        }
        line |= {key: _clean(value) if isinstance(value, str) else value for key, value in _extras(record).items()}
        if record.exc_info:
            line["exception"] = _clean(self.formatException(record.exc_info))
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """A record as a line for people: time of day, level, message, and the extras."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        extras = "".join(f" {key}={value}" for key, value in _extras(record).items())
        line = f"{time} {record.levelname.lower():7} {record.getMessage()}{extras}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return _clean(line)


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _PLAIN}


def _clean(text: str) -> str:
    return _SECRET.sub(r"\1***", text)
