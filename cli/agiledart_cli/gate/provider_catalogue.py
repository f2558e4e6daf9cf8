"""Providers by name: `local`, `libcloud`, and those of other packages by the entry point `agiledart.providers`."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any

from agiledart_kernel.errors import ConfigurationError
from agiledart_provisioning.providers.provider import Provider

GROUP = "agiledart.providers"


def provider_named(kind: str, options: Mapping[str, Any]) -> Provider:
    """Return a provider. Raises ConfigurationError: it is unknown, or refuses its options."""
    if kind == "local":
        from agiledart_cli.gate.local_provider import LocalProvider

        return LocalProvider(options)
    if kind == "libcloud":
        from agiledart_cli.gate.libcloud_provider import LibcloudProvider

        return LibcloudProvider(options)
    points = {point.name: point for point in entry_points(group=GROUP)}
    if kind in points:
        make: Callable[[Mapping[str, Any]], Provider] = points[kind].load()
        return make(options)
    names = ("local", "libcloud", *points)
    close = get_close_matches(kind, names, 1)
    raise ConfigurationError(
        f"[provider] kind = {kind!r}: known are {', '.join(names)}.{f' Did you mean {close[0]}?' if close else ''}"
    )
