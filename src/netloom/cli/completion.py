"""`netloom completion`: the script by which a shell completes commands, kinds and names."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script.

    \b
    bash: source <(netloom completion bash)
    zsh:  source <(netloom completion zsh)
    fish: netloom completion fish | source
    """
    found = get_completion_class(shell)
    assert found is not None
    maker = found(ctx.find_root().command, {}, "netloom", "_NETLOOM_COMPLETE")
    # Not source(): for bash it runs bash to check its version, and bash may not be installed here.
    click.echo(maker.source_template % maker.source_vars())
