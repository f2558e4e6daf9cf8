#!/usr/bin/env bash
# Hostile runs for so many minutes: two thirds of the time the swarm on rings, one third whole nodes with submissions.
# Usage: tools/simulate.sh AGILEDART MINUTES FIRST_SEED [DIRECTORY]
# Prints one JSON document for each scenario, or writes it into the directory. Exit code 1 when something was wrong; then the
# command that replays the run is on stderr.
set -euo pipefail
agiledart=$1 minutes=$2 seed=$3 directory=${4:-}
failed=0
for part in swarm:2 applications:1; do
    scenario=${part%:*}
    share=$(awk "BEGIN { print $minutes * ${part#*:} / 3 }")
    arguments=("$scenario" --seed "$seed" --minutes "$share" -o json)
    if [[ -n $directory ]]; then
        mkdir -p "$directory"
        arguments+=(--keep "$directory/simulate-$scenario.json")
        "$agiledart" simulate "${arguments[@]}" >/dev/null || failed=1
    else
        "$agiledart" simulate "${arguments[@]}" || failed=1
    fi
done
exit $failed
