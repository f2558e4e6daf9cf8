"""Strangers at a running agent: refused for the right reason, counted, said once, at no cost that lasts."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from agiledart_node.wire.commands import Info
from tests.e2e.attacks import REFUSED_FOR, Attack, Target, many_links, slow, strangers, unfinished
from tests.e2e.mesh import AgentProcess, Mesh, mesh, names_seen, wait_for

pytestmark = pytest.mark.e2e


def refusals(agent: AgentProcess) -> dict[str, int]:
    """How many were refused so far, by reason."""
    return dict(agent.ask(Info())["refusals"])


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    with mesh(2) as made:
        yield made


@pytest.mark.parametrize("attack", REFUSED_FOR, ids=lambda attack: attack.__name__)
def test_each_attack_is_refused_with_the_right_reason(ring: Mesh, attack: Attack) -> None:
    target = Target.of(ring.agent("a2").address, ring.agent("a1").state_dir)
    before = refusals(ring.agent("a2"))
    asyncio.run(attack(target))

    def counted() -> bool:
        after = refusals(ring.agent("a2"))
        return any(after.get(reason, 0) > before.get(reason, 0) for reason in REFUSED_FOR[attack])

    wait_for(counted, 8, f"{attack.__name__} counted as one of {REFUSED_FOR[attack]}: {refusals(ring.agent('a2'))}")
    assert names_seen(ring.agent("a1")) == {"a1", "a2"}


def test_each_reason_is_logged_once(ring: Mesh) -> None:
    target = Target.of(ring.agent("a2").address, ring.agent("a1").state_dir)

    async def many() -> None:
        for attack in REFUSED_FOR:
            if attack is not slow:
                await asyncio.gather(*(attack(target) for _ in range(5)))

    asyncio.run(many())
    log = ring.agent("a2").log.read_text()
    for reason in ("tls", "expired", "signature", "role", "another key"):
        assert log.count(f": {reason} (further refusals are only counted)") == 1, reason
    assert "Traceback" not in log


@pytest.mark.parametrize("apart", [False, True], ids=["one address", "each its own"])
def test_a_newcomer_is_admitted_while_unknown_nodes_hold_connections(apart: bool) -> None:
    async def scenario(made: Mesh) -> None:
        target = Target.of(made.agent("a1").address, made.agent("a1").state_dir)
        async with strangers(target, 200, apart=apart):
            await asyncio.to_thread(
                wait_for, lambda: refusals(made.agent("a1")).get("crowded", 0) > 100, 20, "strangers take turns"
            )
            await asyncio.to_thread(made.grow, 1)

    with mesh(1) as made:
        asyncio.run(scenario(made))
        assert "lost" not in made.agent("a2").log.read_text()


@pytest.mark.parametrize(
    ("role", "service", "megabytes"),
    [
        ("reader", "control", 30),
        pytest.param("submitter", "control", 80, marks=pytest.mark.soak),
        pytest.param("agent", "overlay", 80, marks=pytest.mark.soak),
    ],
)
def test_frames_that_never_end_stay_small(role: str, service: str, megabytes: int) -> None:
    """24 links, each with all but the last byte of the longest frame."""
    highest = 0.0

    async def scenario(made: Mesh) -> None:
        nonlocal highest
        agent = made.agent("a1")
        target = Target.of(agent.address, agent.state_dir)
        before = agent.rss_mb()
        attack = asyncio.create_task(unfinished(target, role, service, 24))
        while not attack.done():
            highest = max(highest, agent.rss_mb() - before)
            await asyncio.wait({attack}, timeout=0.1)
        attack.result()

    with mesh(1) as made:
        asyncio.run(scenario(made))
        print(f"{role}: grew by {highest:.1f} MB")
        assert highest < megabytes
        refused = refusals(made.agent("a1"))
        assert refused["oversize" if role == "reader" else "unfinished"] == 24


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_ten_thousand_attempts_leave_no_trace() -> None:
    attempts = 10_000
    with mesh(1) as made:
        agent = made.agent("a1")
        target = Target.of(agent.address, agent.state_dir)
        kinds = [attack for attack in REFUSED_FOR if attack not in (slow, many_links)]  # one attempt is one refusal

        async def storm(count: int) -> None:
            gate = asyncio.Semaphore(16)
            cycle = itertools.cycle(kinds)

            async def one(attack: Attack) -> None:
                async with gate:
                    await attack(target)

            await asyncio.gather(*(one(next(cycle)) for _ in range(count)))

        asyncio.run(storm(300))  # modules loaded at the first refusal of each kind
        wait_for(lambda: sum(refusals(agent).values()) >= 300, 20, "the first ones are counted")
        before, counted = agent.rss_mb(), sum(refusals(agent).values())
        asyncio.run(storm(attempts))
        wait_for(lambda: sum(refusals(agent).values()) - counted >= attempts, 20, "every attempt is counted")
        assert sum(refusals(agent).values()) - counted == attempts
        grown = agent.rss_mb() - before
        print(f"RSS {before:.1f} MB, grew by {grown:.1f} MB in {attempts:,} attempts")
        assert grown < 5
        assert "Traceback" not in agent.log.read_text()
