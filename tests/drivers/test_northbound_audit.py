"""What is said of rows that are not as they should be: on plain values, by the same comparison that writes them."""

from netloom.drivers.northbound.audit import RowFinding, findings
from netloom.plan.audit.finding import Check
from netloom.plan.ovn.desired import DesiredRows
from netloom.plan.rows import Ref
from tests.drivers.northbound_world import BLUE, SWITCH, WEB, Plain, attachment, port, switch, wanted


def audited(database: Plain, desired: DesiredRows) -> list[RowFinding]:
    bundles = database.look(desired)
    return findings(bundles, database.last.problems, database.seen, desired.rows)


def filled() -> tuple[Plain, DesiredRows]:
    database = Plain()
    desired = wanted(blue=switch(), web=port("web", addresses=frozenset({"a"})))
    database.apply(desired, desired.take())
    return database, desired


def uuid_of(database: Plain, ref: Ref) -> str:
    return database.seen.uuids[ref]


def test_of_what_is_as_it_should_be_nothing_is_said() -> None:
    assert audited(*filled()) == []


def test_a_row_that_is_missing_is_said_once_and_not_also_of_its_switch() -> None:
    database, desired = filled()
    lsw = uuid_of(database, SWITCH)
    database.change("Logical_Switch", lsw, ports=frozenset())
    database.collect()
    [found] = audited(database, desired)
    assert (found.check, found.unit, found.key) == (Check.MISSING_ROW, WEB, "ns1/web")


def test_a_changed_column_is_said_with_both_values() -> None:
    database, desired = filled()
    database.change("Logical_Switch_Port", uuid_of(database, Ref("Logical_Switch_Port", "ns1/web")),
                    addresses=frozenset({"b"}))  # fmt: skip
    [found] = audited(database, desired)
    assert (found.check, found.message) == (Check.DRIFTED_ROW, "addresses is b, not a")


def test_a_row_nobody_wants_is_a_leftover_with_or_without_a_life_of_its_own() -> None:
    database, desired = filled()
    desired.replace(attachment("web"), None)
    [found] = audited(database, desired)
    assert (found.check, found.unit, found.table) == (Check.LEFTOVER_ROW, WEB, "Logical_Switch_Port")
    desired.replace(BLUE, None)
    kinds = {(one.check, one.table) for one in audited(database, desired)}
    assert (Check.LEFTOVER_ROW, "Logical_Switch") in kinds


def test_a_second_row_of_one_key_is_a_double() -> None:
    database, desired = filled()
    first = database.rows["Logical_Switch", uuid_of(database, SWITCH)]
    database.add("Logical_Switch", name="ns1/blue", external_ids=dict(first.external_ids))
    assert [one.check for one in audited(database, desired) if one.table == "Logical_Switch"] == [Check.DOUBLE_ROW]


def test_rows_of_others_are_nobodys_business_and_a_name_they_have_is_told() -> None:
    database = Plain()
    database.add("Logical_Switch", name="ns1/blue")
    database.add("Logical_Switch", name="somebody")
    desired = wanted(blue=switch())
    [found] = audited(database, desired)
    assert found.check is Check.REFUSED_ROWS
    assert "named 'ns1/blue' that is not Netloom's" in found.message


def test_what_is_found_is_found_again_in_the_same_words() -> None:
    database, desired = filled()
    desired.replace(attachment("db"), port("db"))
    assert audited(database, desired) == audited(database, desired) != []
