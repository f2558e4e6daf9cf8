"""`agiledart completion`: print the completion script of a shell, made by click."""

import click

from agiledart_cli.bash_completion import use_whole_words


@click.command(short_help="Print a completion script for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script with which a shell completes verbs and options. Bash needs version 4.4.

    \b
    Example:
      echo 'eval "$(agiledart completion bash)"' >> ~/.bashrc
      echo 'eval "$(agiledart completion zsh)"' >> ~/.zshrc
      agiledart completion fish > ~/.config/fish/completions/agiledart.fish
    """
    from click.shell_completion import get_completion_class

    from agiledart_cli.main import VARIABLE, cli

    use_whole_words()
    made = get_completion_class(shell)
    assert made is not None  # click has all three
    maker = made(cli, {}, "agiledart", VARIABLE)
    click.echo(maker.source_template % maker.source_vars())  # `source()` would start a bash to ask for its version
