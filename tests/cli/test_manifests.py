from pathlib import Path

import pytest

from netloom.cli.objects import manifests
from netloom.errors import BadRequest
from netloom.model.references import REFERENCES
from netloom.model.registry import KINDS

NETWORK = "apiVersion: netloom.dev/v1alpha1\nkind: Network\nmetadata: {name: %s}\n"
SUBNET = "apiVersion: netloom.dev/v1alpha1\nkind: Subnet\nmetadata: {name: %s}\n"


def names(files: list[Path | str]) -> list[str]:
    return [manifest.name for manifest in manifests.read([str(file) for file in files])]


def test_what_is_used_comes_before_what_uses_it(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(SUBNET % "web" + "---\n" + NETWORK % "blue")
    assert names([file]) == ["Network/blue", "Subnet/web"]


def test_every_kind_comes_after_all_that_it_names() -> None:
    for reference in REFERENCES:
        before, after = (manifests.ORDER.index(kind.name) for kind in (reference.target, reference.holder))
        assert before < after or reference.holder is reference.target, f"{reference.holder.name}: {reference.path}"
    assert {kind.name for kind in KINDS if kind.group == "netloom.dev"} <= set(manifests.ORDER)


def test_a_folder_gives_its_files_in_order_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(NETWORK % "b")
    (tmp_path / "a.yml").write_text(NETWORK % "a")
    (tmp_path / "c.json").write_text('{"apiVersion": "v1", "kind": "X", "metadata": {"name": "c"}}')
    (tmp_path / "notes.txt").write_text("no")
    assert names([tmp_path]) == ["Network/a", "Network/b", "X/c"]


def test_one_bad_document_costs_that_document_and_says_its_line(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(NETWORK % "a" + "---\nkind: [\n---\n" + NETWORK % "b")
    found = manifests.read([str(file)])
    assert sorted(manifest.name for manifest in found if manifest.error is None) == ["Network/a", "Network/b"]
    bad = next(manifest for manifest in found if manifest.error is not None)
    assert bad.where == f"{file}:4"


def test_a_separator_inside_a_block_text_is_no_separator(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(NETWORK % "a" + "note: |\n  one\n  ---\n  two\n")
    (found,) = manifests.read([str(file)])
    assert found.document["note"] == "one\n---\ntwo\n"


def test_a_list_gives_its_items(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    item = '{"kind": "N", "apiVersion": "v1", "metadata": {"name": "x"}}'
    file.write_text(f'{{"apiVersion": "v1", "kind": "List", "items": [{item}, {item}]}}')
    assert names([file]) == ["N/x", "N/x"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: Network\nmetadata: {name: x}\n", "apiVersion is required"),
        ("apiVersion: v1\n", "kind and metadata.name are required"),
        ("apiVersion: v1\nkind: X\nmetadata: 3\n", "metadata.name is required"),
    ],
)
def test_a_document_that_names_no_object_says_what_it_lacks(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    (found,) = manifests.read([str(file)])
    assert str(found.error) == says


def test_empty_documents_are_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("---\n# only a comment\n---\n" + NETWORK % "a" + "---\n")
    assert names([file]) == ["Network/a"]


def test_a_url_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="URLs are not supported"):
        manifests.read(["https://example.com/a.yaml"])


def test_bytes_that_are_no_text_are_refused_with_the_place(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"abc\xff")
    (found,) = manifests.read([str(file)])
    assert str(found.error) == "not UTF-8 at byte 3"
