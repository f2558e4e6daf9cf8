"""Checks of `agiledart doctor` on this machine; each function is one check and changes nothing."""

import contextlib
import ctypes
import os
import re
import resource
import socket
import stat
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from agiledart_cli.output import duration
from agiledart_kernel.errors import OperationFailed

OK, WATCH, BAD = "ok", "watch", "bad"

NEEDED = ("msgspec", "cryptography", "click", "rich", "uvloop")
SPARK = ("pyspark", "pyarrow", "pandas")

MAX_LISTED = 5_000
"""Files of a folder that are looked at for tokens."""

MAX_SOCKET_PATH = 107
"""Greatest length of a Unix socket's path on Linux, bytes."""

_MB = 1 << 20
_TIME_ERROR = 5
"""Return value of adjtimex(2) when no time service synchronises the clock (TIME_ERROR)."""


@dataclass(frozen=True)
class DoctorFinding:
    """Result of one check; every result that is not ok has a suggestion."""

    name: str
    level: str
    text: str
    suggestion: str = ""


def check_python() -> DoctorFinding:
    """Check the Python interpreter."""
    word = sys.version.split()[0]
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return DoctorFinding("python", BAD, word, "use Python 3.11, 3.12 or 3.13")
    if sys.flags.optimize:
        return DoctorFinding(
            "python", BAD, f"{word} with -O", "run without -O: the agent checks itself with assertions"
        )
    return DoctorFinding("python", OK, f"{word} on {os.uname().machine}")


def check_packages() -> DoctorFinding:
    """Check the packages that every installation needs."""
    have, missing = _versions(("agiledart", *NEEDED))
    if missing:
        return DoctorFinding(
            "packages", BAD, f"missing: {', '.join(missing)}", "install again: pip install --force-reinstall agiledart"
        )
    return DoctorFinding("packages", OK, have)


def check_libp2p() -> DoctorFinding:
    """Check the optional py-libp2p: without it, nodes on one local network do not find each other by themselves."""
    have, missing = _versions(("libp2p",))
    if missing:
        text = "not installed: no neighbours by mDNS, no router's port by UPnP"
        install = 'pip install "agiledart[libp2p]", which needs gcc, python3-dev and libgmp-dev'
        return DoctorFinding("libp2p", OK, f"{text} (if you want them: {install})")
    return DoctorFinding("libp2p", OK, have)


def _versions(names: tuple[str, ...]) -> tuple[str, list[str]]:
    have, missing = [], []
    for name in names:
        try:
            have.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    return ", ".join(have), missing


def check_clock(now: float | None = None, synchronised: bool | None = None) -> DoctorFinding:
    """Check the wall clock; the validity of certificates and tokens depends on it."""
    from agiledart_agent.identity.clock_check import RELEASED

    seconds = time.time() if now is None else now
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    advice = "set it: sudo timedatectl set-ntp true (package systemd-timesyncd or chrony)"
    if seconds < RELEASED.timestamp():
        return DoctorFinding("clock", BAD, f"{shown}: the clock is behind", advice)
    if seconds > RELEASED.timestamp() + 30 * 366 * 86_400:
        return DoctorFinding(
            "clock", BAD, f"{shown}: the clock is ahead; all certificates have expired by then", advice
        )
    is_synchronised = is_clock_synchronised() if synchronised is None else synchronised
    if is_synchronised is False:
        return DoctorFinding(
            "clock", WATCH, f"{shown}, but no time service synchronises it (links need clocks within 5 min)", advice
        )
    return DoctorFinding("clock", OK, shown if is_synchronised is None else f"{shown}, synchronised")


def is_clock_synchronised() -> bool | None:
    """Return whether a time service synchronises the kernel's clock; None when the kernel does not report it."""
    try:
        call = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    answer = call(ctypes.create_string_buffer(512))  # struct timex with modes 0: only reads
    return None if answer < 0 else answer != _TIME_ERROR


def check_share(cores: int | None = None, memory_mb: int | None = None) -> DoctorFinding:
    """Check how many nodes of the ring this machine could run."""
    from agiledart_overlay.tables.virtual_nodes import virtual_nodes

    cores = cores or os.cpu_count() or 1
    memory_mb = memory_mb or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MB
    count = virtual_nodes(cores, memory_mb)
    shown = f"{cores} cores and {memory_mb:,} MB"
    if count == 1:
        return DoctorFinding("share", OK, f"{shown}: enough for one node")
    return DoctorFinding("share", OK, f"{shown}: enough for {count} nodes, an agent each with --cores {cores // count}")


def check_confinement(wanted: bool, landlock_version: int | None = None) -> DoctorFinding:
    """Check whether users' code can read the keys of an agent here."""
    from agiledart_executor.user_code import landlock

    supported_version = landlock.version() if landlock_version is None else landlock_version
    name, open_to = "users' code", "can read this agent's keys and act as it"
    if not wanted:
        return DoctorFinding(name, WATCH, f"{open_to}: agent.confine is false", "remove that setting")
    if supported_version < landlock.NEEDED_VERSION:
        advice = "run Linux 5.19 or newer with landlock in lsm= of its command line; until then admit only users whom you trust"
        return DoctorFinding(name, WATCH, f"{open_to}: the kernel has no Landlock", advice)
    if supported_version < landlock.TRUNCATE_VERSION:
        advice = "run Linux 6.2 or newer"
        return DoctorFinding(name, WATCH, "cannot read this agent's keys, but can empty their files", advice)
    return DoctorFinding(name, OK, f"cannot reach this agent's keys and records (Landlock {supported_version})")


def check_interpreter(is_confined: bool, folders: Iterable[Path] | None = None) -> DoctorFinding:
    """Check whether this user, as whom users' code runs, may change the Python that runs next.

    Args:
        is_confined: users' code reads these folders and cannot write there.
        folders: of Python and its modules; None: those of this process.
    """
    from agiledart_executor.user_code.confinement import writable_code_folders

    writable = [str(folder) for folder in writable_code_folders(folders)]
    name = "interpreter"
    if not writable:
        return DoctorFinding(name, OK, "the agent's user cannot change it")
    text = (
        f"the agent's user may write into {writable[0]}{f' and {len(writable) - 1} more' if len(writable) > 1 else ''}"
    )
    if is_confined:
        return DoctorFinding(name, OK, f"{text}; users' code cannot")
    return DoctorFinding(name, WATCH, f"{text}, and so may users' code", "install it as another user, or as root")


def check_forking(wanted: bool, reason: str | None = None, share: str = "none") -> DoctorFinding:
    """Check whether an agent here can fork its executors.

    Args:
        reason: why not; None: a trial finds out.
        share: as in the agent's settings.
    """
    from agiledart_agent.executors.nursery_trial import try_nursery

    name, slow = "executors", "each starts an interpreter of its own, for more time and memory"
    if not wanted:
        return DoctorFinding(name, OK, f"{slow}: agent.fork_executors is false")
    if why := try_nursery() if reason is None else reason:
        advice = "install the engine again; else set agent.fork_executors to false, which avoids the vain tries"
        return DoctorFinding(name, WATCH, f"{slow}: {why}", advice)
    shared = "; small applications of one owner share a process" if share == "owner" else ""
    return DoctorFinding(name, OK, f"are forked from one process{shared}")


def check_port(name: str, host: str, port: int, own_pid: int | None) -> DoctorFinding:
    """Check whether an agent can listen there, or which process does. `own_pid`: process id of this machine's agent."""
    from agiledart_agent.host.network_addresses import process_on_port

    where = f"{host}:{port}"
    if port == 0:
        return DoctorFinding(name, OK, "any free port")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except PermissionError:
        return DoctorFinding(name, BAD, f"{where} may not be used by this user", "choose a port from 1024 on")
    except OSError as error:
        holder = process_on_port(port)
        if own_pid is not None and holder.startswith(f"pid {own_pid},"):
            return DoctorFinding(name, OK, f"{where}, held by the agent here ({holder})")
        if error.errno == 98 or holder:
            return DoctorFinding(
                name, WATCH, f"{where} is held by {holder or 'another process'}", f"give {host}:0 for any free one"
            )
        return DoctorFinding(
            name, BAD, f"{where}: {(error.strerror or str(error)).lower()}", "give an address of this machine"
        )
    return DoctorFinding(name, OK, f"{where} is free")


def check_state_directory(folder: Path) -> list[DoctorFinding]:
    """Check the agent's state directory: owner, permissions and free space."""
    name = "state directory"
    if len(os.fsencode(folder / "control.sock")) > MAX_SOCKET_PATH:
        return [DoctorFinding(name, BAD, f"{folder}: too long for a socket", "choose a shorter one with --state-dir")]
    try:
        status = folder.stat()
    except FileNotFoundError:
        return _unmade(folder)
    except OSError as error:
        return [
            DoctorFinding(name, BAD, f"{folder}: {(error.strerror or '').lower()}", "choose another with --state-dir")
        ]
    if not stat.S_ISDIR(status.st_mode):
        return [
            DoctorFinding(name, BAD, f"{folder} is no directory", "move it away, or choose another with --state-dir")
        ]
    if status.st_uid != os.geteuid():
        owner = f"uid {status.st_uid}"
        first = DoctorFinding(
            name, WATCH, f"{folder} belongs to {owner}", "ask as that user, or choose your own --state-dir"
        )
    elif not os.access(folder, os.W_OK | os.X_OK):
        first = DoctorFinding(name, BAD, f"{folder} cannot be written", f"run: chmod u+rwx {folder}")
    elif status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        first = DoctorFinding(name, WATCH, f"{folder} is open to others (mode {mode:03o})", f"run: chmod 700 {folder}")
    else:
        first = DoctorFinding(name, OK, f"{folder} (mode {stat.S_IMODE(status.st_mode):03o})")
    return [first, *check_disk_space(folder)]


def check_token_files(folders: Sequence[Path]) -> list[DoctorFinding]:
    """Find files of tokens in these folders: users' code can read those that lie where it is not kept from."""
    from agiledart_executor.user_code.confinement import is_token_file

    paths: list[str] = []
    for folder in dict.fromkeys(folders):
        try:
            with os.scandir(folder) as entries:
                files = [entry.path for _, entry in zip(range(MAX_LISTED), entries, strict=False) if entry.is_file()]
        except OSError:
            continue
        paths += [path for path in files if is_token_file(path)]
    if not paths:
        return []
    text = f"a token lies in {', '.join(sorted(paths)[:3])}{', …' if len(paths) > 3 else ''}"
    return [
        DoctorFinding("tokens", WATCH, text, "delete a token's file where it has been used: it admits its next reader")
    ]


def _unmade(folder: Path) -> list[DoctorFinding]:
    above = next((parent for parent in folder.parents if parent.exists()), Path("/"))
    if not os.access(above, os.W_OK | os.X_OK):
        return [
            DoctorFinding(
                "state directory", BAD, f"{folder} is missing, {above} not writable", "choose another with --state-dir"
            )
        ]
    return [DoctorFinding("state directory", OK, f"{folder} will be made"), *check_disk_space(above)]


def check_disk_space(folder: Path) -> list[DoctorFinding]:
    """Check the free bytes and inodes of a directory's file system."""
    stats = os.statvfs(folder)
    free = stats.f_bavail * stats.f_frsize
    advice = f"free space on the file system of {folder}, or limit sink logs (max_bytes, max_age)"
    text = f"{free / 1e9:,.1f} GB free"
    level = BAD if free < 100 * _MB else WATCH if free < 1024 * _MB else OK
    findings = [DoctorFinding("disk", level, text, "" if level == OK else advice)]
    if stats.f_files:  # some file systems have no fixed number
        share = stats.f_favail / stats.f_files
        level = BAD if share < 0.01 else WATCH if share < 0.05 else OK
        findings.append(
            DoctorFinding("inodes", level, f"{share:.0%} free", "" if level == OK else "remove small files there")
        )
    return findings


def check_memory(table: str | None = None, cgroup: Path = Path("/sys/fs/cgroup")) -> DoctorFinding:
    """Check the memory that a new process can have, including the limit of a container."""
    if table is None:
        try:
            table = Path("/proc/meminfo").read_text()
        except OSError:
            return DoctorFinding("memory", OK, "not reported by this system")
    sizes = {name: int(number) * 1024 for name, number in re.findall(r"^(\w+):\s+(\d+) kB", table, re.MULTILINE)}
    total, free = sizes.get("MemTotal", 0), sizes.get("MemAvailable", sizes.get("MemFree", 0))
    with contextlib.suppress(OSError, ValueError):
        limit = int((cgroup / "memory.max").read_text())  # "max" is no number: no limit
        total = min(total, limit)
        free = min(free, limit - int((cgroup / "memory.current").read_text()))
    text = f"{free / 1e6:,.0f} of {total / 1e6:,.0f} MB available"
    level = BAD if free < 64 * _MB else WATCH if free < 256 * _MB else OK
    advice = "an agent needs about 60 MB, each executor 50 MB and more: end other programs, or use fewer --executors"
    return DoctorFinding("memory", level, text, "" if level == OK else advice)


def check_limits(soft: int | None = None) -> DoctorFinding:
    """Check the limit of file descriptors; each link, client and executor needs one or more."""
    number = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if soft is None else soft
    if number == resource.RLIM_INFINITY or number >= 1_024:
        return DoctorFinding("open files", OK, "no limit" if number == resource.RLIM_INFINITY else f"up to {number:,}")
    level = BAD if number < 256 else WATCH
    return DoctorFinding("open files", level, f"only {number}", "run: ulimit -n 4096 (systemd: LimitNOFILE=4096)")


def check_load() -> DoctorFinding:
    """Check the load of the processors."""
    cores, load = os.cpu_count() or 1, os.getloadavg()[1]
    text = f"load {load:.1f} on {cores} cores, up for {duration(time.clock_gettime(time.CLOCK_BOOTTIME))}"
    if load > 3 * cores:
        return DoctorFinding("load", WATCH, text, "peers may declare this node failed: move work to other nodes")
    return DoctorFinding("load", OK, text)


def check_java(environment: Mapping[str, str] = os.environ) -> DoctorFinding:
    """Check Java, which only readers of sinks with Spark need."""
    have, missing = _versions(SPARK)
    if missing:
        return DoctorFinding(
            "spark", OK, "not installed (only needed to read sinks with it: pip install 'agiledart[spark]')"
        )
    from agiledart.spark import find_java

    try:
        java = find_java(environment)
    except OperationFailed as error:
        text, _, advice = str(error).partition(". ")
        return DoctorFinding("spark", WATCH, f"{have}; {text}", advice)
    return DoctorFinding("spark", OK, f"{have}; Java {java.version} ({java.origin})")
