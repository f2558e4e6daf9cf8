"""Process that calls a cloud for a gate: one request on standard input, one answer on standard output. Only it imports libcloud.

Credentials come from `AGILEDART_CLOUD_KEY` and `AGILEDART_CLOUD_SECRET`, or from the files `cloud-key` and `cloud-secret` of
systemd's `LoadCredential`. They go to the cloud, and nowhere else: words of the cloud that repeat them are cleaned.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from agiledart_cli.gate.cloud_driver import DRIVERS, CloudDriver
from agiledart_cli.gate.helper_messages import CloudAnswer, CloudRequest, CloudSize
from agiledart_kernel.errors import ConfigurationError
from agiledart_provisioning.gate.gate_messages import CallFailure, ProviderHost

KEY, SECRET = "AGILEDART_CLOUD_KEY", "AGILEDART_CLOUD_SECRET"
_FILES = {KEY: "cloud-key", SECRET: "cloud-secret"}
SHORTEST_SECRET = 4
"""Characters of a credential that is looked for in a cloud's words; shorter texts occur in any sentence."""

OFF_SECONDS = 600
"""Age from which a machine that is off counts as ended: while a machine begins, some clouds call it off."""

QUOTA_WORDS = (
    "quota",
    "limit exceeded",
    "limitexceeded",
    "limit reached",
    "insufficientinstancecapacity",
    "out of capacity",
)
PAYMENT_WORDS = ("payment", "billing", "declined", "past due", "balance")


@dataclass(frozen=True)
class Credentials:
    """Key and secret of a cloud account; a cloud with one token has no secret."""

    key: str
    secret: str

    def __repr__(self) -> str:
        return "Credentials()"

    def cleaned(self, text: str) -> str:
        """Return a text without the credentials."""
        for secret in (self.secret, self.key):
            if len(secret) >= SHORTEST_SECRET:
                text = text.replace(secret, "***")
        return text


def read_credentials(environment: Mapping[str, str]) -> Credentials:
    """Return the credentials. Raises ConfigurationError: there are none; it names the variable, never a value."""
    values = {}
    for variable, name in _FILES.items():
        value = environment.get(variable, "")
        folder = environment.get("CREDENTIALS_DIRECTORY", "")
        path = Path(folder) / name
        if not value and folder and path.exists():
            value = path.read_text().strip()
        values[variable] = value
    if not values[KEY]:
        raise ConfigurationError(
            f"The cloud needs a credential: set {KEY} (and {SECRET}, where the cloud has one), or give the gate's unit "
            "LoadCredential=cloud-key: and LoadCredential=cloud-secret:"
        )
    return Credentials(values[KEY], values[SECRET])


def make_driver(request: CloudRequest, credentials: Credentials) -> Any:
    """Return a driver of libcloud. Raises ConfigurationError: libcloud is missing, or the region is unknown."""
    try:
        from libcloud.compute.providers import get_driver
    except ImportError:
        raise ConfigurationError('kind = "libcloud" needs apache-libcloud: pip install "agiledart[cloud]"') from None
    driver_class: Any = get_driver(request.driver)
    row = DRIVERS[request.driver]
    region = {row.region: request.region} if row.region and request.region else {}
    arguments = (credentials.key, credentials.secret) if credentials.secret else (credentials.key,)
    try:
        return driver_class(*arguments, **region, **request.connection)
    except ValueError as error:
        if request.driver == "ec2" and request.region not in driver_class.list_regions():
            raise ConfigurationError(unknown("region", request.region, driver_class.list_regions())) from None
        raise ConfigurationError(f"[provider] the driver {request.driver} refuses its options: {error}") from None
    except TypeError as error:
        raise ConfigurationError(f"[provider] the driver {request.driver} refuses its options: {error}") from None


def unknown(what: str, name: str, known: list[str]) -> str:
    """Return the message about an unknown name."""
    close = get_close_matches(name, known, 1)
    meant = f" Did you mean {close[0]}?" if close else ""
    return f"[provider] {what} = {name!r}: the cloud has {', '.join(sorted(known)[:20])}.{meant}"


class CloudCalls:
    """Calls of one driver.

    Args:
        driver: of libcloud. row: keywords of the driver.
        now_s: wall clock, seconds.
    """

    def __init__(self, driver: Any, row: CloudDriver, request: CloudRequest, now_s: Callable[[], float]) -> None:
        self._driver, self._row, self._request, self._now_s = driver, row, request, now_s

    def offers(self) -> CloudAnswer:
        """Return the sizes, after a look at region and image. Raises ConfigurationError."""
        self._location()
        if not self._row.image_is_named:
            self._check_image()
        return CloudAnswer(
            sizes=tuple(CloudSize(self._size_name(size), float(size.price or 0)) for size in self._driver.list_sizes())
        )

    def lease(self) -> CloudAnswer:
        """Make the machine; return the listed one of its name, where there is one."""
        request = self._request
        for node in self._driver.list_nodes():
            if node.name == request.name and not self._has_ended(node):
                return CloudAnswer(hosts=(self._described(node),))
        sizes = {self._size_name(size): size for size in self._driver.list_sizes()}
        if (size := sizes.get(request.size)) is None:
            raise ConfigurationError(unknown("offer", request.size, list(sizes)))
        location = self._location()
        keywords = {**request.create, **self._row.keywords(request.script, request.name)}
        if location is not None:
            keywords["location"] = location
        node = self._driver.create_node(name=request.name, size=size, image=self._image(), **keywords)
        return CloudAnswer(hosts=(self._described(node),))

    def hosts(self) -> CloudAnswer:
        """Return the machines whose name begins with the prefix. Delete those that have switched themselves off, as they cost."""
        hosts = []
        for node in self._driver.list_nodes():
            if not node.name.startswith(self._request.name) or self._has_ended(node):
                continue
            host = self._described(node)
            is_off = node.state == "stopped" and self._now_s() - host.created_ns / 1e9 > OFF_SECONDS
            if not (is_off and self._is_deleted(node)):
                hosts.append(host)
        return CloudAnswer(hosts=tuple(hosts))

    def _is_deleted(self, node: Any) -> bool:
        """Delete a machine that is off. One that cannot be deleted now stays in the list, where its gate sees that it costs."""
        try:
            return bool(self._driver.destroy_node(node))
        except Exception:  # noqa: BLE001  the drivers raise errors of any kind; the list of all other machines must not fail with it
            return False

    def release(self) -> CloudAnswer:
        """Delete a machine, if it is there."""
        for node in self._driver.list_nodes():
            if str(node.id) == self._request.host_id and not self._has_ended(node):
                if not self._driver.destroy_node(node):
                    return CloudAnswer(
                        failure=CallFailure.LOST.value, reason="the cloud did not confirm that the machine is deleted"
                    )
                break
        return CloudAnswer()

    def _size_name(self, size: Any) -> str:
        return str(size.name if self._row.size_by_name else size.id)

    def _has_ended(self, node: Any) -> bool:
        return bool(node.state == "terminated")

    def _described(self, node: Any) -> ProviderHost:
        return ProviderHost(str(node.id), node.name, round(self._created_s(node) * 1e9))

    def _created_s(self, node: Any) -> float:
        """Return the time at which a machine was made; now, when the driver does not say it."""
        made = node.created_at
        for key in ("launch_time", "created", "creationTimestamp", "created_at"):
            made = made or (node.extra or {}).get(key)
        if isinstance(made, str):
            try:
                made = datetime.fromisoformat(made.replace("Z", "+00:00"))
            except ValueError:
                made = None
        if not isinstance(made, datetime):
            return self._now_s()
        return made.replace(tzinfo=made.tzinfo or UTC).timestamp()

    def _location(self) -> Any:
        """Return the location of the region; None: the driver itself has it. Raises ConfigurationError."""
        if self._row.region:
            return None
        locations = {str(location.id): location for location in self._driver.list_locations()}
        if self._request.region not in locations:
            raise ConfigurationError(unknown("region", self._request.region, list(locations)))
        return locations[self._request.region]

    def _image(self) -> Any:
        if self._row.image_is_named:
            return self._request.image
        from libcloud.compute.base import NodeImage

        return NodeImage(self._request.image, self._request.image, self._driver)

    def _check_image(self) -> None:
        """Look the image up. Raises ConfigurationError: it is unknown, with the nearest name where the cloud lists images."""
        from libcloud.common.exceptions import BaseHTTPError
        from libcloud.common.types import ProviderError

        try:
            self._driver.get_image(self._request.image)
        except NotImplementedError:
            known = [str(image.id) for image in self._driver.list_images()]
            if self._request.image not in known:
                raise ConfigurationError(unknown("image", self._request.image, known)) from None
        except (BaseHTTPError, ProviderError) as error:
            if _status(error) in (400, 404):
                raise ConfigurationError(
                    f"[provider] image = {self._request.image!r}: the cloud says: {error}"
                ) from None
            raise
        except (IndexError, KeyError):
            raise ConfigurationError(
                f"[provider] image = {self._request.image!r}: the cloud has no such image"
            ) from None


def _status(error: Exception) -> int:
    """Return the HTTP status of a cloud's error; 0: it has none."""
    from libcloud.common.exceptions import BaseHTTPError
    from libcloud.common.types import ProviderError

    if isinstance(error, BaseHTTPError):
        return int(error.code or 0)
    return int(error.http_code or 0) if isinstance(error, ProviderError) else 0


def failed(error: Exception, credentials: Credentials) -> CloudAnswer:
    """Return the answer about a call that failed. It counts as lost unless it is certainly undone."""
    words, status = credentials.cleaned(str(error) or type(error).__name__)[:500], _status(error)
    lower = words.lower()
    kind = CallFailure.LOST
    if 400 <= status < 500 and status != 408:
        kind = CallFailure.REFUSED
        if status == 402 or any(word in lower for word in PAYMENT_WORDS):
            kind = CallFailure.PAYMENT
        elif any(word in lower for word in QUOTA_WORDS):
            kind = CallFailure.QUOTA
    return CloudAnswer(failure=kind.value, reason=words)


def answer(request: CloudRequest, driver: Any, credentials: Credentials, now_s: Callable[[], float]) -> CloudAnswer:
    """Carry out a request on a driver."""
    calls = CloudCalls(driver, DRIVERS[request.driver], request, now_s)
    verbs = {"offers": calls.offers, "lease": calls.lease, "hosts": calls.hosts, "release": calls.release}
    try:
        return verbs[request.verb]()
    except ConfigurationError as error:
        return CloudAnswer(mistake=str(error))
    except Exception as error:  # noqa: BLE001  the drivers raise errors of any kind, plain Exception too
        return failed(error, credentials)


def main() -> None:
    """Read a request, and write its answer."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=CloudRequest)
    try:
        credentials = read_credentials(os.environ)
        driver = make_driver(request, credentials)
    except ConfigurationError as error:
        result = CloudAnswer(mistake=str(error))
    except Exception as error:  # noqa: BLE001  a driver's constructor may call the cloud
        result = failed(error, credentials)
    else:
        result = answer(request, driver, credentials, time.time)
    sys.stdout.buffer.write(msgspec.json.encode(result))


if __name__ == "__main__":
    main()
