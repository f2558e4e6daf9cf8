#!/bin/sh
# Builds agiledart_VERSION_ARCH.deb for the distribution on which it runs: an environment of its own in /opt, the unit of systemd, and
# /etc/agiledart/agent.toml.
#
#   deploy/deb/build.sh [OUT]          (default: dist/)
#
# Needs python3-venv, dpkg-dev and a package index, once; the package needs none of them. The same tree, interpreter and index give the
# same bytes (SOURCE_DATE_EPOCH, default: the time of the last commit).
set -eu
cd "$(dirname "$0")/../.."
out=${1:-dist}
python=${PYTHON:-/usr/bin/python3}
extras=${EXTRAS:-mqtt,sql,query}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
umask 022

minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
next=$("$python" -c 'import sys; print("%d.%d" % (sys.version_info[0], sys.version_info[1] + 1))')
version=$("$python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
release=$(. /etc/os-release && printf '%s%s' "$ID" "${VERSION_ID:-}")
arch=$(dpkg --print-architecture)
root=$work/root
opt=$root/opt/agiledart

echo "building agiledart $version-1~$release for $arch with Python $minor" >&2
"$python" -m venv "$work/builder"
"$work/builder/bin/pip" install -q --disable-pip-version-check "hatchling>=1.27" "editables>=0.5"
"$work/builder/bin/python" -m hatchling build -t wheel -d "$work/wheel" >/dev/null
"$python" -m venv --without-pip "$opt"
"$work/builder/bin/pip" --python "$opt/bin/python" install -q --disable-pip-version-check --no-compile --only-binary :all: --prefer-binary \
    "$(ls "$work"/wheel/*.whl)[$extras]" 2>"$work/pip" || {
    # zfec has no wheel for every machine: what has none is built here
    "$work/builder/bin/pip" --python "$opt/bin/python" install -q --disable-pip-version-check --no-compile --prefer-binary \
        "$(ls "$work"/wheel/*.whl)[$extras]" || { cat "$work/pip" >&2; exit 1; }
}
# The environment was made here and lives in /opt.
grep -rlI "$opt" "$opt/bin" "$opt/pyvenv.cfg" | xargs -r sed -i "s#$opt#/opt/agiledart#g"
rm -f "$opt"/bin/activate* "$opt"/bin/Activate* "$opt/bin/pip"* "$opt"/lib/python*/site-packages/*.dist-info/direct_url.json
find "$opt" -name RECORD -path '*.dist-info/*' -exec sed -i '/direct_url.json/d' {} +
install -d "$root/usr/share/doc/agiledart"
"$python" tools/sbom.py "$opt"/lib/python*/site-packages >"$root/usr/share/doc/agiledart/agiledart.cdx.json"
"$python" -m compileall -q --invalidation-mode unchecked-hash -s "$root" "$opt/lib" || true

install -D -m 0644 deploy/systemd/agiledart.service "$root/usr/lib/systemd/system/agiledart.service"
install -D -m 0644 deploy/deb/agiledart-first-start.service "$root/usr/lib/systemd/system/agiledart-first-start.service"
install -D -m 0644 deploy/systemd/agent.toml "$root/etc/agiledart/agent.toml"
install -D -m 0644 deploy/deb/copyright "$root/usr/share/doc/agiledart/copyright"
install -d "$root/usr/bin" "$root/usr/share/lintian/overrides" "$root/DEBIAN"
ln -s /opt/agiledart/bin/agiledart "$root/usr/bin/agiledart"
install -m 0644 deploy/deb/lintian-overrides "$root/usr/share/lintian/overrides/agiledart"
printf 'agiledart (%s-1~%s) stable; urgency=medium\n\n  * Changes: https://pypi.org/project/agiledart/\n\n -- The AgileDart developers <agiledart@localhost>  %s\n' \
    "$version" "$release" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$root/usr/share/doc/agiledart/changelog.Debian.gz"
for script in postinst prerm postrm; do install -m 0755 "deploy/deb/$script" "$root/DEBIAN/$script"; done
echo /etc/agiledart/agent.toml >"$root/DEBIAN/conffiles"
size=$(du -sk --exclude=DEBIAN "$root" | cut -f1)
sed -e "s/@VERSION@/$version-1~$release/; s/@ARCH@/$arch/; s/@SIZE@/$size/; s/@PYTHON@/$minor/; s/@NEXT@/$next/" deploy/deb/control >"$root/DEBIAN/control"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' md5sum) >"$root/DEBIAN/md5sums"
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
deb=$out/agiledart_$version-1~${release}_$arch.deb
dpkg-deb --root-owner-group -Zxz -z1 --build "$root" "$deb" >/dev/null
echo "$deb"
