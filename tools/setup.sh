#!/usr/bin/env bash
# Makes the virtual environment $1 with the project (editable) and its development tools. Says what is missing, in one line.
set -euo pipefail
venv=${1:-.venv}
system_line="sudo apt-get install -y make git python3 python3-venv"

python=""
for candidate in python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "AgileDart needs Python 3.11, 3.12 or 3.13 and found none. On Debian or Ubuntu:  $system_line" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    echo "$python cannot make virtual environments here. On Debian or Ubuntu:  $system_line" >&2
    exit 1
fi

echo "Setting up $venv with $("$python" --version) (first time only; downloads about 45 MB) …" >&2
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "$venv/bin/python" -m pip install --disable-pip-version-check --quiet --editable ".[dev]" >"$log" 2>&1; then
    cat "$log" >&2
    echo "Installing failed. The first run needs the package index (PyPI); run make again when it can be reached." >&2
    exit 1
fi
