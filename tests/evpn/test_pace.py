"""How often a RemoteVTEP is written, however often its routes change."""

from netloom.control.evpn.pace import BURST, MOST, SECONDS, WritePace


def test_an_object_that_changes_all_the_time_is_written_a_few_times_a_second_and_others_at_once() -> None:
    pace, now, writes = WritePace[str](), 0.0, 0
    while now < 10.0:
        if wait := pace.wait("a", now):
            assert wait <= SECONDS
            now += wait + 1e-6
            continue
        pace.note("a", now)
        writes += 1
    assert BURST < writes <= BURST + 10.0 / SECONDS + 1
    assert pace.wait("b", now) == 0.0
    assert pace.wait("a", now + BURST * SECONDS) == 0.0


def test_a_bounded_number_of_objects_is_remembered() -> None:
    pace = WritePace[int]()
    for number in range(MOST + 10):
        pace.note(number, 0.0)
    assert len(pace._buckets) == MOST
