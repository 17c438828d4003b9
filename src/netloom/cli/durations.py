"""Durations such as 30s, 1m30s, 500ms and 2h."""

import re

import click

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(click.ParamType[float]):
    """The duration of an option, in seconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Accept `30s`, `1m30s` or plain seconds; a negative number means forever, as in kubectl."""
        if isinstance(value, int | float):
            return float(value)
        text = str(value)
        if re.fullmatch(r"-?\d+(\.\d+)?s?", text):
            return float(text.removesuffix("s"))
        parts = _PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            self.fail(f"{text!r} is not a duration such as 30s, 1m30s or 2h.", param, ctx)
        return float(sum(float(number) * _SECONDS[unit] for number, unit in parts))


DURATION = Duration()
