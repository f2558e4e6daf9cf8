"""Prometheus's own checker, where it is installed."""

import shutil
import subprocess

import pytest


def promtool() -> str:
    """Its path; skips the calling test with the name of the package."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    return found


def lint(*words: str, text: str = "") -> str:
    """Promtool's output about a valid file."""
    ran = subprocess.run([promtool(), *words], input=text, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr
