import io
import json
import logging

import pytest

from netloom.run import logs


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> object:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def logged(form: str, level: str = "info") -> tuple[logging.Logger, io.StringIO]:
    out = io.StringIO()
    logs.configure(level=level, form=form, stream=out)
    return logging.getLogger("netloom.test"), out


def test_a_json_line_carries_time_level_message_and_extras() -> None:
    log, out = logged("json")
    log.info("listening on %s", "127.0.0.1:1", extra={"revision": 7, "owner": "serve"})
    line = json.loads(out.getvalue())
    assert line["level"] == "info"
    assert line["message"] == "listening on 127.0.0.1:1"
    assert (line["revision"], line["owner"], line["logger"]) == (7, "serve", "netloom.test")
    assert line["time"].endswith("Z")


def test_an_exception_is_one_json_line_too() -> None:
    log, out = logged("json")
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")
    lines = out.getvalue().splitlines()
    assert len(lines) == 1
    assert "ValueError: no" in json.loads(lines[0])["exception"]


def test_what_is_not_a_terminal_gets_json() -> None:
    log, out = logged("auto")
    log.warning("x")
    assert json.loads(out.getvalue())["message"] == "x"


def test_text_shows_extras_behind_the_message() -> None:
    log, out = logged("text")
    log.info("ready", extra={"port": 1})
    assert out.getvalue().rstrip().endswith("info    ready port=1")


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_token_that_slipped_into_a_message_is_struck_out(form: str) -> None:
    log, out = logged(form)
    log.info("header was Authorization: Bearer %s", "abcdefghijklmnop", extra={"sent": "token=abcdefghijklmnop"})
    assert "abcdefghijklmnop" not in out.getvalue()
    assert "***" in out.getvalue()


def test_levels_below_the_one_asked_for_are_left_out() -> None:
    log, out = logged("json", "error")
    log.warning("x")
    assert out.getvalue() == ""
