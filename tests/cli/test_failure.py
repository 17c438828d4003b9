from pathlib import Path

import pytest

from netloom.cli.failure import explain
from netloom.errors import Cause, Conflict, Invalid, NotFound


def test_a_refusal_is_one_line() -> None:
    assert explain(NotFound('networks.netloom.dev "x" not found')) == 'Error: networks.netloom.dev "x" not found'


def test_an_invalid_object_lists_every_field_once() -> None:
    causes = [Cause("spec.cidr", "not a CIDR"), Cause("spec.network", "required"), Cause("spec.cidr", "not a CIDR")]
    error = Invalid('Subnet.netloom.dev "s" is invalid: [spec.cidr: not a CIDR, spec.network: required]', causes=causes)
    assert explain(error, where="a.yaml").splitlines() == [
        'Error: a.yaml: Subnet.netloom.dev "s" is invalid:',
        "  spec.cidr: not a CIDR",
        "  spec.network: required",
    ]


def test_an_object_in_use_lists_every_user_once() -> None:
    users = [Cause("", "Subnet default/v4", "InUse"), Cause("", "and 3 more", "InUse")]
    error = Conflict('networks "blue": it is used by Subnet default/v4 and 3 more', causes=users)
    assert explain(error).splitlines() == [
        'Error: networks "blue": it is used by:',
        "  Subnet default/v4",
        "  and 3 more",
    ]


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(OSError) as caught:
        Path("/nowhere/at/all").read_text()
    assert explain(caught.value) == "Error: /nowhere/at/all: No such file or directory"


def test_failures_of_several_tasks_are_said_once_each() -> None:
    group = ExceptionGroup("tasks", [NotFound("a"), NotFound("a"), ExceptionGroup("more", [NotFound("b")])])
    assert explain(group) == "Error: a\nError: b"


def test_a_bug_is_called_one_and_shows_no_traceback() -> None:
    text = explain(KeyError("x"))
    assert "this is a bug" in text
    assert "Traceback" not in text
