"""What is written down of programs at interfaces, and what is said of those that may not run."""

from hypothesis import given
from hypothesis import strategies as st

from netloom.model.kinds.attachments import ExecReport, NetworkAttachmentSpec
from netloom.plan.node import hooks
from netloom.plan.node.hooks import AFTER, EXEC, After, Commands

KNOWN = {"ifname": "nl0", "ipv4": "10.0.0.9", "mac": "02:00:00:00:00:09"}
TEXTS = st.text(max_size=20)


def spec(*create: str, delete: tuple[str, ...] = ()) -> NetworkAttachmentSpec:
    return NetworkAttachmentSpec(node="n1", network="blue", post_create_exec=create, post_delete_exec=delete)


def test_variables_are_filled_in_in_arguments_once_and_never_in_the_program() -> None:
    command = ("/bin/${mac}", "${ifname}", "a${ipv4}/${mac}", "$ifname ${IFNAME} ${ipv6} $${mac}")
    assert hooks.filled(command, KNOWN) == (
        "/bin/${mac}",
        "nl0",
        "a10.0.0.9/02:00:00:00:00:09",
        "$ifname ${IFNAME} ${ipv6} $02:00:00:00:00:09",
    )
    assert hooks.filled(("/x", "${ifname}"), {**KNOWN, "ifname": "${mac}"}) == ("/x", "${mac}")
    assert hooks.filled((), KNOWN) == ()


def test_an_interface_without_ipv4_has_none_to_fill_in() -> None:
    made = hooks.commands(spec("/x", "[${ipv4}]"), device="nl0", ips=["fd00::9/64"], mac="02:00:00:00:00:09")
    assert made == Commands(("/x", "[]"), ())


def test_a_program_must_be_among_the_allowed_to_the_letter() -> None:
    allowed = ("/bin/a", "/bin/b")
    assert hooks.complaints(spec("/bin/a", "x", delete=("/bin/b",)), allowed) == ()
    for wrong in ("/bin/../bin/a", "/bin//a", "/bin/a ", "/bin/c"):
        line = f"postCreateExec: {wrong} is not among the programs this agent allows (--allowed-programs)"
        assert hooks.complaints(spec(wrong), allowed) == (line,)
    assert hooks.complaints(spec(), ()) == ()


def test_a_command_that_is_too_long_to_be_kept_is_not_run_and_said() -> None:
    long = ("/bin/a", *["x" * 1000] * 5)
    made = hooks.commands(spec(*long), device="nl0", ips=[], mac="")
    assert made == Commands((), ())
    assert hooks.complaints(spec(*long), ["/bin/a"]) == (
        "postCreateExec: too long: it has 5006 bytes, and 4096 is the most",
    )


@given(st.lists(TEXTS, min_size=1), TEXTS, st.integers(-9, 300))
def test_what_is_written_is_what_is_read(command: list[str], text: str, exit_status: int) -> None:
    report = ExecReport(command=tuple(command), exit_status=exit_status, start_time="t", std_out=text)
    assert hooks.read_report(hooks.written(report)) == report
    after = After("ns", "name", "uid", text, tuple(command))
    assert hooks.read_after(hooks.after(after)[AFTER]) == after
    assert hooks.read_report(hooks.due(tuple(command))[EXEC]) == ExecReport(command=tuple(command))


@given(st.one_of(st.none(), st.text(), st.sampled_from(["{}", '{"command": 3}', "[]", '{"namespace": "x"}'])))
def test_what_somebody_else_wrote_runs_nothing(text: str | None) -> None:
    assert hooks.read_after(text) is None
    assert hooks.read_report(text) is None
