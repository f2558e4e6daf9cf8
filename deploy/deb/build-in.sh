#!/bin/sh
# Builds the package of another distribution or machine in a root of it, as root. With qemu-user-static also for another processor.
#
#   debootstrap --variant=minbase --include=python3,python3-venv,dpkg-dev,ca-certificates trixie ROOT
#   deploy/deb/build-in.sh ROOT [OUT]         (default: dist/)
#
# Variables of pip (PIP_INDEX_URL, PIP_CERT …) hold in the root, too.
set -eu
root=$1
out=${2:-dist}
mkdir -p "$out"
epoch=$(git -C "$(dirname "$0")" log -1 --format=%ct)
source=$root/tmp/agiledart-source
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf "$source"' EXIT INT TERM
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mkdir -p "$source"
git -C "$(dirname "$0")/../.." archive HEAD | tar -x -C "$source"
cp /etc/resolv.conf "$root/etc/resolv.conf"
if [ -n "${PIP_CERT:-}" ]; then
    cp "$PIP_CERT" "$source/certificates.crt"
    export PIP_CERT=/tmp/agiledart-source/certificates.crt SSL_CERT_FILE=/tmp/agiledart-source/certificates.crt
fi
chroot "$root" env SOURCE_DATE_EPOCH="$epoch" LC_ALL=C.UTF-8 sh -c 'cd /tmp/agiledart-source && deploy/deb/build.sh /tmp/agiledart-source/dist'
cp "$source"/dist/*.deb "$out/"
ls "$out"/*.deb
