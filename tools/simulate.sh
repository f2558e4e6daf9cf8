#!/usr/bin/env bash
# Hostile runs of every scenario for so many minutes in all; rings, whole nodes with submissions get most of it.
# Usage: tools/simulate.sh AGILEDART MINUTES FIRST_SEED [DIRECTORY]
# Prints one JSON document for each scenario, or writes one of all into DIRECTORY/simulate.json. Exit code 1 when something was
# wrong; then the command that replays the run is on stderr.
set -euo pipefail
agiledart=$1 minutes=$2 seed=$3 directory=${4:-}
failed=0 parts=()
for part in swarm:6 applications:6 partitions:3 crashes:3 pauses:2 joins:2 weather:2 recovery:4 routes:2; do
    scenario=${part%:*}
    share=$(awk "BEGIN { print $minutes * ${part#*:} / 30 }")
    arguments=("$scenario" --seed "$seed" --minutes "$share" -o json)
    if [[ -n $directory ]]; then
        mkdir -p "$directory"
        written=$directory/simulate-$scenario.part
        rm -f "$written"
        "$agiledart" simulate "${arguments[@]}" --keep "$written" >/dev/null || failed=1
        if [[ -s $written ]]; then parts+=("$written"); fi # it may have been ended before it could write
    else
        "$agiledart" simulate "${arguments[@]}" || failed=1
    fi
done
if [[ ${#parts[@]} -gt 0 ]]; then
    "$(dirname "$agiledart")/python" "$(dirname "$0")/gather_runs.py" "$directory" "${parts[@]}"
fi
exit $failed
