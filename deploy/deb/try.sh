#!/bin/sh
# Installs, upgrades, removes and purges a package in a root of its distribution, as root. Each line says what it showed.
#
#   debootstrap --variant=minbase --include=python3 bookworm ROOT
#   deploy/deb/try.sh PACKAGE.deb ROOT
set -eu
deb=$1
root=$2
inside() { chroot "$root" "$@"; }
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
trap 'umount "$root/proc" 2>/dev/null || true' EXIT INT TERM
cp "$deb" "$root/tmp/agiledart.deb"

inside dpkg --install /tmp/agiledart.deb >/dev/null
echo "installed: $(inside agiledart --version), $(inside dpkg-query -f '${Installed-Size}' -W agiledart) kB"
test ! -e "$root/var/lib/agiledart" && echo "nothing has started, and no state is there"
inside agiledart agent --config /etc/agiledart/agent.toml --check >/dev/null && echo "the settings are valid"
inside agiledart setup --new 2>&1 | grep -q "systemd does not run here" && echo "setup says that systemd does not run here"

# An agent as its unit starts it, but for systemd: a user of its own and a state directory.
inside useradd --system --create-home --home-dir /var/lib/agiledart agiledart 2>/dev/null || true
start() {
    chroot --userspec=agiledart:agiledart "$root" env HOME=/var/lib/agiledart AGILEDART_AGENT__LISTEN=127.0.0.1:0 \
        AGILEDART_AGENT__METRICS=127.0.0.1:0 agiledart agent --state-dir /var/lib/agiledart --name pi >"$root/tmp/agent.log" 2>&1 &
    agent=$!
    tries=0
    until inside agiledart nodes --agent /var/lib/agiledart >/dev/null 2>&1; do
        tries=$((tries + 1)); test $tries -lt 120 || { cat "$root/tmp/agent.log"; exit 1; }; sleep 0.5
    done
}
identity() { sha256sum <"$root/var/lib/agiledart/node.key"; }
end() { kill -TERM "$agent"; wait "$agent" || test $? -eq 143; }
start
before=$(identity)
inside agiledart run agiledart_examples.debs2015:frequent_routes --set 'trips=taxi:?count=2000' --set report=csv:/tmp/routes.csv 2>/dev/null >&2
echo "an agent runs as a user of its own; the taxi job wrote $(wc -l <"$root/tmp/routes.csv") lines"
end

inside dpkg --install /tmp/agiledart.deb >/dev/null
start
test "$(identity)" = "$before" && echo "upgraded: the node is the same"
end
inside dpkg --remove agiledart >/dev/null 2>&1
test ! -e "$root/usr/bin/agiledart" && test -e "$root/var/lib/agiledart/node.key" && echo "removed: key and state are still there"
inside dpkg --purge agiledart >/dev/null 2>&1
test ! -e "$root/var/lib/agiledart" && test ! -e "$root/etc/agiledart" && test ! -e "$root/opt/agiledart" && echo "purged: nothing is left"
