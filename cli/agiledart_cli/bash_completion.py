"""Completion in bash, which splits words at `:` and `=` and replaces only the last part: `taxi.py:fr`, `--set tri`.

click takes the words as bash splits them, so it would complete neither a function of a file nor the value of a setting.
"""

import os
from typing import Any

from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

_SCRIPT = """\
%(complete_func)s() {
    local IFS=$'\\n'
    local response completion type value
    response=$(env COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" COMP_PART="${COMP_WORDS[COMP_CWORD]}" \\
        %(complete_var)s=bash_complete $1)
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == 'plain' ]]; then
            [[ $value == *[:=] ]] && compopt -o nospace
            COMPREPLY+=("$value")
        fi
    done
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class BashWordCompletion(BashComplete):
    """Completion of whole words of the command line; of each completion only what bash does not have yet is printed."""

    source_template = _SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the one at the cursor."""
        line = os.environ.get("COMP_LINE", "")
        typed = line.encode()[: int(os.environ.get("COMP_POINT") or len(line.encode()))].decode(errors="ignore")
        words = split_arg_string(typed)
        incomplete = words.pop() if words and not typed[-1:].isspace() else ""
        part = os.environ.get("COMP_PART", "").lstrip(":=")
        self._before = len(incomplete) - len(part) if incomplete.endswith(part) else 0
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return a line for the script."""
        value = item.value if item.type != "plain" or item.value.startswith("-") else item.value[self._before :]
        return f"{item.type},{value}"


def use_whole_words() -> None:
    """Have click complete in bash by this class."""
    add_completion_class(BashWordCompletion)
