"""Waiting until a lab is at rest after whatever happened to it: all is Ready, all answer, the doctor finds nothing."""

from collections.abc import Callable

from netloom.lab import Lab
from tests.lab.churning import Churn
from tests.run.serving import netloom
from tests.support.process import wait_until

REST = 90.0


def at_rest(lab: Lab, churn: Churn) -> None:
    """Return when all that churned is Ready and answers, and the doctor finds nothing."""
    eventually(churn.unready, "everything to be Ready")
    eventually(churn.silent, "everybody to answer")
    healthy(lab)


def healthy(lab: Lab) -> None:
    """Return when `netloom doctor` finds nothing."""

    def findings() -> list[str]:
        answer = netloom("doctor", "--lab", lab.layout.folder, check=False)
        return [] if answer.rc == 0 else [answer.out, answer.err]

    eventually(findings, "the doctor to find nothing")


def eventually(findings: Callable[[], list[str]], what: str) -> None:
    """Return when there are no findings any more; fail with those that are left."""
    left: list[str] = []

    def none() -> bool:
        nonlocal left
        left = findings()
        return not left

    try:
        wait_until(none, what=what, timeout=REST, interval=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}: {'; '.join(left)}") from None
