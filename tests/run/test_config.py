from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netloom.errors import Invalid
from netloom.run import config
from netloom.run.config import ApiserverSettings, ControllerSettings, ServeSettings


def load(
    flags: dict[str, object] | None = None, environ: dict[str, str] | None = None, file: Path | None = None
) -> tuple[ServeSettings, dict[str, str]]:
    settings, loaded = config.load(
        ServeSettings, flags=flags or {}, environ=environ or {}, file=str(file) if file else ""
    )
    return settings, loaded.sources


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "netloom.yaml"
    file.write_text(text)
    return file


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, "listen: 1.1.1.1:1\nlogLevel: error\nlogFormat: json\n")
    environ = {"NETLOOM_LISTEN": "2.2.2.2:2", "NETLOOM_LOG_LEVEL": "debug"}
    settings, sources = load({"listen": "3.3.3.3:3", "log_level": None}, environ, file)
    assert (settings.listen, settings.log_level, settings.log_format, settings.data) == (
        "3.3.3.3:3",
        "debug",
        "json",
        "",
    )
    given = {"listen": "--listen", "logLevel": "NETLOOM_LOG_LEVEL", "logFormat": str(file)}
    assert {key: source for key, source in sources.items() if source != "default"} == given


def test_an_unknown_key_is_refused_naming_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        load(file=written(tmp_path, "listn: 1.1.1.1:1\n"))
    assert [str(cause) for cause in caught.value.causes] == [
        f"listn: unknown key in {tmp_path / 'netloom.yaml'}; did you mean listen?"
    ]


def test_a_misspelt_variable_is_refused_and_a_stranger_is_not() -> None:
    with pytest.raises(Invalid, match="configuration") as caught:
        load(environ={"NETLOOM_LISTEM": "1.1.1.1:1", "NETLOOM_KUBE_BIN": "/x"})
    assert [cause.field for cause in caught.value.causes] == ["NETLOOM_LISTEM"]
    assert "did you mean NETLOOM_LISTEN?" in caught.value.causes[0].message


def test_everything_wrong_is_said_at_once_with_where_it_came_from(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        load({"log_level": "loud"}, {"NETLOOM_LOG_FORMAT": "xml"}, written(tmp_path, "data: [1]\n"))
    assert {cause.field for cause in caught.value.causes} == {"logLevel", "logFormat", "data"}
    assert any("(from --log-level)" in cause.message for cause in caught.value.causes)


def test_lists_come_from_commas_or_from_the_file(tmp_path: Path) -> None:
    assert load({"hosts": "a, b"})[0].hosts == ("a", "b")
    assert load(file=written(tmp_path, "hosts: [a, b]\n"))[0].hosts == ("a", "b")


@pytest.mark.parametrize(("text", "value"), [("true", True), ("0", False), ("no", False), ("on", True)])
def test_switches_are_read_from_the_environment(text: str, value: bool) -> None:
    found, _ = config.load(ControllerSettings, flags={}, environ={"NETLOOM_LEADER_ELECT": text})
    assert found.leader_elect is value


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"nowhere\.yaml: No such file"):
        load(file=tmp_path / "nowhere.yaml")


def test_what_is_required_says_all_three_ways_to_give_it() -> None:
    with pytest.raises(Invalid) as caught:
        config.require(ApiserverSettings(), "store", "tls_cert")
    assert [cause.field for cause in caught.value.causes] == ["store", "tlsCert"]
    assert caught.value.causes[1].message == "required: use --tls-cert, NETLOOM_TLS_CERT or tlsCert: in the file"


def test_the_effective_configuration_reads_as_a_file_again(tmp_path: Path) -> None:
    settings, loaded = config.load(ServeSettings, flags={"hosts": "a,b"}, environ={"NETLOOM_DATA": "/d"})
    again, _ = load(file=written(tmp_path, loaded.text()))
    assert again == settings


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:8480", "127.0.0.1", 8480), ("[::1]:1", "::1", 1), (":80", "", 80), ("localhost:0", "localhost", 0)],
)
def test_addresses_are_read(text: str, host: str, port: int) -> None:
    assert config.address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "8480", "localhost", "a:b", "1.1.1.1:65536", "::1:80", "x:-1", "x:٣"])
def test_what_is_no_address_is_refused_naming_the_key(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        config.address(text)
    assert caught.value.causes[0].field == "listen"


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        host, port = config.address(text)
    except Invalid:
        return
    assert 0 <= port <= 65535
    assert ":" not in host or text.startswith("[")
