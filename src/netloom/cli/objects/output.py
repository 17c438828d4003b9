"""The option -o: objects as YAML, JSON, names or JSONPath."""

from collections.abc import Sequence

import click

from netloom.cli.terminal import print_json
from netloom.model import codec
from netloom.model.document import Document
from netloom.model.registry import KINDS
from netloom.model.values.jsonpath import Template

FORMATS = ("wide", "yaml", "json", "name")


class OutputType(click.ParamType[str]):
    """The values of -o."""

    name = "format"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Accept a known format, or jsonpath=PATH with a valid path."""
        text = str(value)
        if text.startswith("jsonpath="):
            Template(text.removeprefix("jsonpath="))
            return text
        if text not in FORMATS:
            self.fail(f"{text!r} is not one of {', '.join(FORMATS)}, jsonpath=PATH.", param, ctx)
        return text

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """Return the formats, for the help text."""
        return "|".join((*FORMATS, "jsonpath=PATH"))


def print_documents(documents: Sequence[Document], form: str, *, single: bool, managed_fields: bool = False) -> None:
    """Print documents in one of the formats that are not tables; several become one List."""
    if not managed_fields:
        documents = [_without_managed_fields(document) for document in documents]
    if form == "name":
        for document in documents:
            click.echo(name_of(document))
        return
    whole: Document = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(documents)}
    if single:
        whole = documents[0]
    if form.startswith("jsonpath="):
        text = Template(form.removeprefix("jsonpath=")).render(whole)
        click.echo(text, nl=not text.endswith("\n"))
    elif form == "json":
        print_json(whole)
    else:
        click.echo(codec.encode_yaml(whole), nl=False)


def name_of(document: Document) -> str:
    """Return `network.netloom.dev/blue`."""
    api_version, kind = str(document.get("apiVersion", "")), str(document.get("kind", ""))
    group = api_version.rpartition("/")[0]
    singular = next((k.singular for k in KINDS if k.api_version == api_version and k.name == kind), kind.lower())
    return (
        f"{singular}.{group}/{document['metadata']['name']}" if group else f"{singular}/{document['metadata']['name']}"
    )


def _without_managed_fields(document: Document) -> Document:
    metadata = {key: value for key, value in document.get("metadata", {}).items() if key != "managedFields"}
    return {**document, "metadata": metadata}
