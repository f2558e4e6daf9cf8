#!/bin/sh
# Makes a signed apt repository of packages: a folder for a web server, a USB stick, or a machine of a site without internet.
#
#   deploy/deb/repository.sh KEY OUT PACKAGE.deb…
#
# KEY: id or address of a secret key of gpg (gpg --quick-generate-key "Site <site@example.org>" ed25519 sign never). One folder for each
# distribution, with packages of several architectures, and those of Debian that a site without internet lacks (python3). Run it again
# with all packages to add one. On each node, with the folder at /srv/agiledart or at a web server:
#
#   sudo cp /srv/agiledart/agiledart-archive-keyring.gpg /usr/share/keyrings/
#   echo "deb [signed-by=/usr/share/keyrings/agiledart-archive-keyring.gpg] file:/srv/agiledart ./" | sudo tee /etc/apt/sources.list.d/agiledart.list
#   sudo apt update && sudo apt install agiledart
#
# Needs dpkg-dev and gpg.
set -eu
test $# -ge 3 || { sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' >&2; exit 2; }
key=$1
out=$2
shift 2
mkdir -p "$out"
for deb in "$@"; do
    test "$deb" -ef "$out/${deb##*/}" || cp "$deb" "$out/"
done
cd "$out"
gpg --batch --yes --export --output agiledart-archive-keyring.gpg "$key"
dpkg-scanpackages --multiversion . >Packages 2>scan.log || { cat scan.log >&2; exit 1; }
rm scan.log
gzip -9nkf Packages
date=$(date -u -R ${SOURCE_DATE_EPOCH:+-d "@$SOURCE_DATE_EPOCH"})
{
    printf 'Origin: agiledart\nLabel: agiledart\nSuite: stable\nCodename: agiledart\nDate: %s\n' "$date"
    printf 'Architectures: %s\n' "$(sed -n 's/^Architecture: //p' Packages | sort -u | paste -sd ' ')"
    echo "SHA256:"
    for file in Packages Packages.gz; do
        printf ' %s %s %s\n' "$(sha256sum "$file" | cut -d ' ' -f 1)" "$(stat -c %s "$file")" "$file"
    done
} >Release
gpg --batch --yes --local-user "$key" --clearsign --output InRelease Release
gpg --batch --yes --local-user "$key" --armor --detach-sign --output Release.gpg Release
echo "$out: $(grep -c '^Package: ' Packages) packages, signed by $key"
