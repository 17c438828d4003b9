"""The metrics of speakers, while two sites talk to each other."""

import asyncio
from pathlib import Path

from netloom.run.metrics.speaker import MOST, OTHER, bounded, speakers
from tests.evpn.sites import Site, eventually, sites

MAC = "02:00:00:00:00:01"


def scrape(site: Site) -> dict[tuple[str, ...], float]:
    """Return the samples of a site's speaker, by name and values of labels other than the speaker."""
    found = {}
    for family in speakers(lambda: site.host):
        for sample in family.samples:
            labels = [value for name, value in sorted(sample.labels.items()) if name != "speaker"]
            found[sample.name, *labels] = sample.value
    return found


def test_numbers_follow_what_happens(tmp_path: Path) -> None:
    async def main() -> None:
        async with sites(tmp_path) as (one, two):
            for site in (one, two):
                await site.stretch()
            await one.attach("web", MAC, ["10.0.0.1"])

            async def learned() -> bool:
                return set(await two.remote()) == {MAC}

            await eventually(learned, "the machine")
            now = scrape(two)
            assert now["netloom_bgp_sessions", "Established"] == 1
            assert now["netloom_bgp_sessions", "Idle"] == 0
            assert now["netloom_bgp_session_up", one.address] == 1
            assert now["netloom_bgp_routes_received", one.address] == 3
            assert now["netloom_bgp_routes_sent", one.address] == 1
            assert now["netloom_bgp_updates_total", one.address] >= 2
            assert now["netloom_bgp_malformed_total", one.address] == 0
            assert now["netloom_bgp_session_flaps_total", one.address] == 0
            assert now["netloom_bgp_routes",] == 4
            assert now["netloom_evpn_forwarding", "default/blue"] == 1
            assert now["netloom_evpn_remote_macs", "default/blue"] == 1
            assert now["netloom_evpn_remote_vteps", "default/blue"] == 1
            assert now["netloom_evpn_local_macs", "default/blue"] == 0
            assert scrape(one)["netloom_evpn_local_macs", "default/blue"] == 1
            assert now["netloom_evpn_duplicate_macs", "default/blue"] == 0
            assert now["netloom_evpn_vtep_writes_total", "create"] == 1
            assert now["netloom_evpn_import_lag_seconds_count",] >= 1
            await one.silence()

            async def down() -> bool:
                found = scrape(two)
                return found["netloom_bgp_session_flaps_total", one.address] == 1

            await eventually(down, "the end of the session")
            assert scrape(two)["netloom_bgp_session_up", one.address] == 0

    asyncio.run(main())


def test_without_a_speaker_there_are_families_and_no_peers() -> None:
    families = {family.name: family for family in speakers(lambda: None)}
    assert families["netloom_bgp_session_up"].samples == []
    assert {sample.value for sample in families["netloom_bgp_sessions"].samples} == {0}
    assert families["netloom_bgp_routes"].samples[0].value == 0


def test_the_number_of_labels_is_limited_and_nothing_is_lost() -> None:
    many = {("s", f"{number:05}"): 1.0 for number in range(MOST + 1000)}
    kept = bounded(many)
    assert len(kept) == MOST + 1
    assert kept[OTHER, OTHER] == 1000
    assert sum(kept.values()) == len(many)
    few = {("s", "a"): 1.0}
    assert bounded(few) == few
