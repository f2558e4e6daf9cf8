"""Drivers of apache-libcloud that a gate knows: each has other keywords for start data, tags and the region."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from agiledart_kernel.errors import ConfigurationError

CLOUD_INIT_ID = "cloud-init query v1.instance_id"
"""Command that prints the id which a machine has at its provider."""

_GOOGLE_ID = "curl -sf -H 'Metadata-Flavor: Google' http://metadata.google.internal/computeMetadata/v1/instance/id"


@dataclass(frozen=True, slots=True)
class CloudDriver:
    """Keywords and habits of a driver. Source: the signatures of `create_node` in apache-libcloud 3.9.

    Attributes:
        start_data: keyword of `create_node` for the script; start_key: its key where that keyword is a table.
        tags: keyword for the lease's tag; tags_form: `table`, `list` in the keyword's table, or `text`.
        region: keyword of the constructor; empty: `create_node` takes a location.
        has_hourly_prices: its sizes carry the price of an hour. Otherwise the gate's file must.
        ends_when_off: a machine that switches itself off ends, and costs nothing more.
        fixed: further keywords of `create_node`.
        id_command: prints the machine's id, run on the machine.
        size_by_name: users know a size by its name, not by its id.
        image_is_named: `create_node` takes an image's name, not an object.
    """

    start_data: str
    tags: str
    tags_form: str
    region: str = ""
    start_key: str = ""
    has_hourly_prices: bool = False
    ends_when_off: bool = False
    fixed: Mapping[str, object] = field(default_factory=dict)
    id_command: str = CLOUD_INIT_ID
    image_is_named: bool = False
    size_by_name: bool = False

    def keywords(self, script: str, lease: str) -> dict[str, object]:
        """Return the keywords of `create_node` that bring a machine its script and its tag."""
        tag: object = {"agiledart-lease": lease}
        if self.tags_form == "list":
            tag = {"tags": ["agiledart", f"agiledart-lease:{lease}"]}
        elif self.tags_form == "text":
            tag = f"agiledart-lease-{lease}"
        start: object = {self.start_key: script} if self.start_key else script
        return {**self.fixed, self.start_data: start, self.tags: tag}


DRIVERS: dict[str, CloudDriver] = {
    "ec2": CloudDriver(
        "ex_userdata", "ex_metadata", "table", "region",
        has_hourly_prices=True, ends_when_off=True, fixed={"ex_terminate_on_shutdown": True},
    ),
    "openstack": CloudDriver("ex_userdata", "ex_metadata", "table", "ex_force_service_region", size_by_name=True),
    "digitalocean": CloudDriver("ex_user_data", "ex_create_attr", "list", has_hourly_prices=True),
    "gce": CloudDriver(
        "ex_metadata", "ex_labels", "table", "datacenter", "startup-script",
        has_hourly_prices=True, id_command=_GOOGLE_ID, image_is_named=True, size_by_name=True,
    ),
    "vultr": CloudDriver("ex_userdata", "ex_tag", "text"),
}  # fmt: skip


def driver_named(name: str) -> CloudDriver:
    """Return a driver. Raises ConfigurationError: it is not supported."""
    if name in DRIVERS:
        return DRIVERS[name]
    close = get_close_matches(name, DRIVERS, 1)
    raise ConfigurationError(
        f"[provider] driver = {name!r}: supported are {', '.join(DRIVERS)}. Each driver has other keywords for start data and "
        f"tags, so others are refused.{f' Did you mean {close[0]}?' if close else ''}"
    )
