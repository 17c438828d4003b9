"""`kubectl netloom`: the commands of `netloom`, with pods for their attachments.

kubectl runs the program kubectl-netloom with all that follows `kubectl netloom`. A word `pod/NAME` becomes the
attachment of that pod, and the namespace is then that of the attachments; `summary` is the status of the network of
pods. Everything else is passed on as it is.
"""

import sys
from collections.abc import Sequence

from netloom.cli import main as commands
from netloom.errors import NetloomError
from netloom.plan.kube import names
from netloom.store.kube import kubeconfig

POD = ("pod/", "pods/", "po/")
SUMMARY = "summary"
_VALUED = {"--kubeconfig": "kubeconfig", "--context": "context", "-n": "namespace", "--namespace": "namespace"}


def main() -> None:
    """Run the plugin and exit with its status."""
    try:
        words = translated(sys.argv[1:])
    except NetloomError as error:
        sys.exit(f"error: {error}")
    sys.exit(commands.run(words))


def translated(words: Sequence[str]) -> list[str]:
    """Return the command line of `netloom` for one of the plugin."""
    rest, options = _without_namespace(words)
    if rest[:1] == [SUMMARY]:
        return ["--namespace", names.NAMESPACE, "status", *rest[1:]]
    if not any(word.startswith(POD) for word in rest):
        return list(words)
    kind = "networkattachment/" if "explain" in rest or "describe" in rest or "get" in rest else ""
    return ["--namespace", names.NAMESPACE, *(_attachment(word, options, kind) for word in rest)]


def _attachment(word: str, options: dict[str, str], kind: str) -> str:
    if not word.startswith(POD):
        return word
    first, _, second = word.partition("/")[2].partition("/")
    return kind + (names.pod(first, second) if second else names.pod(_namespace(options), first))


def _namespace(options: dict[str, str]) -> str:
    """Return the namespace that is meant: that of the option, or of the kubeconfig's context."""
    if given := options.get("namespace"):
        return given
    return kubeconfig.load(options.get("kubeconfig"), context=options.get("context")).namespace


def _without_namespace(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words without the option for the namespace, and the options of the connection."""
    rest: list[str] = []
    options: dict[str, str] = {}
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if name not in _VALUED:
            rest.append(word)
            continue
        value = value if equals else next(left, "")
        options[_VALUED[name]] = value
        if _VALUED[name] != "namespace":
            rest += [name, value]
    return rest, options
