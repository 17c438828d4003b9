"""Waiting until a lab is at rest after whatever happened to it: all is Ready, all answer, the doctor finds nothing."""

from collections.abc import Callable

from netloom.lab import Lab
from tests.lab.churning import Churn
from tests.run.serving import netloom
from tests.support.process import wait_until

REST = 90.0


def at_rest(lab: Lab, churn: Churn) -> None:
    """Return when all that churned has what it wishes for and answers, and nothing is amiss anywhere."""
    eventually(churn.unready, "everything to be Ready")
    eventually(churn.silent, "everybody to answer")
    healthy(lab)


def healthy(lab: Lab) -> None:
    """Return when `netloom doctor` finds nothing."""

    def amiss() -> list[str]:
        answer = netloom("doctor", "--lab", lab.layout.folder, check=False)
        return [] if answer.rc == 0 else [answer.out, answer.err]

    eventually(amiss, "the doctor to find nothing")


def eventually(amiss: Callable[[], list[str]], what: str) -> None:
    """Return when nothing is amiss any more; fail with what still is."""
    left: list[str] = []

    def none() -> bool:
        nonlocal left
        left = amiss()
        return not left

    try:
        wait_until(none, what=what, timeout=REST, interval=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}: {'; '.join(left)}") from None
