"""The apt repository: apt installs from it, and refuses it when a file or the signature was changed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.deploy.expressions import DEPLOY

NEEDED = ("gpg", "dpkg-deb", "dpkg-scanpackages", "apt-get")
pytestmark = pytest.mark.skipif(
    any(shutil.which(name) is None for name in NEEDED), reason=f"needs {', '.join(NEEDED)} (Debian: dpkg-dev, gpg)"
)

CONTROL = "Package: agiledart\nVersion: 0.1.0\nArchitecture: {}\nMaintainer: A <a@example.org>\nDescription: test\n"


def package(folder: Path, architecture: str) -> Path:
    root = folder / f"root-{architecture}"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(CONTROL.format(architecture))
    deb = folder / f"agiledart_0.1.0_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, deb], check=True, capture_output=True)
    return deb


class Site:
    """A repository in a folder, and an apt of its own that knows nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "repository"
        self.keys = folder / "keys"
        self.keys.mkdir(mode=0o700)
        self._environment = {**os.environ, "GNUPGHOME": str(self.keys)}
        self.run(
            "gpg", "--batch", "--passphrase", "", "--quick-generate-key", "site@example.org", "ed25519", "sign", "never"
        )
        for name in ("lists/partial", "cache/archives/partial", "etc"):
            (folder / "apt" / name).mkdir(parents=True)
        (folder / "apt" / "status").touch()
        signed = f"[signed-by={self.out}/agiledart-archive-keyring.gpg]"
        (folder / "apt" / "sources.list").write_text(f"deb {signed} file:{self.out} ./\n")

    def run(self, *words: str) -> str:
        return subprocess.run(words, check=True, capture_output=True, text=True, env=self._environment).stdout

    def apt(self, *words: str) -> "subprocess.CompletedProcess[str]":
        apt = self.folder / "apt"
        options = {
            "Dir::Etc::sourcelist": apt / "sources.list", "Dir::Etc::sourceparts": apt / "etc", "Dir::State": apt,
            "Dir::State::lists": apt / "lists", "Dir::State::status": apt / "status", "Dir::Cache": apt / "cache",
            "APT::Sandbox::User": "root", "APT::Architecture": "amd64", "APT::Update::Error-Mode": "any",
        }  # fmt: skip
        given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return subprocess.run(["apt-get", *given, *words], capture_output=True, text=True, check=False)


def test_apt_takes_a_signed_repository_and_refuses_a_changed_one(tmp_path: Path) -> None:
    site = Site(tmp_path)
    packages = [str(package(tmp_path, architecture)) for architecture in ("amd64", "arm64")]
    try:
        made = site.run(str(DEPLOY / "deb" / "repository.sh"), "site@example.org", str(site.out), *packages)
        assert "2 packages, signed by site@example.org" in made
        assert site.apt("update").returncode == 0
        assert "agiledart_0.1.0_amd64.deb" in site.apt("install", "--print-uris", "-y", "agiledart").stdout
        for name in ("InRelease", "Packages.gz"):
            kept = (site.out / name).read_bytes()
            (site.out / name).write_bytes(
                kept.replace(b"Label: agiledart", b"Label: other") if name == "InRelease" else kept[:-1]
            )
            if name == "Packages.gz":
                (site.out / "Packages").write_text("")
            shutil.rmtree(tmp_path / "apt" / "lists")
            (tmp_path / "apt" / "lists" / "partial").mkdir(parents=True)
            assert site.apt("update").returncode != 0, name
            (site.out / name).write_bytes(kept)
    finally:
        subprocess.run(["gpgconf", "--homedir", site.keys, "--kill", "all"], check=False, capture_output=True)
