"""Flags over environment over file over default, and every mistake named with where it was made."""

import re
from pathlib import Path

import pytest

from agiledart_agent.paper_preset import node_values, own_settings, with_preset
from agiledart_agent.settings import AgentSettings, default_state_dir, split_address
from agiledart_kernel.errors import ConfigurationError
from agiledart_node.context.config import NodeConfig


def test_each_origin_overrides_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('[agent]\nzone = "cellar"\nexecutors = 3\nname = "file"\n')
    settings = AgentSettings.load(
        {"name": "flag", "listen": None},
        {"AGILEDART_AGENT__ZONE": "attic", "AGILEDART_AGENT__NAME": "environment", "HOME": "/h"},
        file,
    )
    assert (settings.name, settings.zone, settings.executors) == ("flag", "attic", 3)
    assert settings.listen == "127.0.0.1:9464"


def test_a_table_has_variables_of_its_own() -> None:
    given = {"AGILEDART_SCALING__INTERVAL": "2", "AGILEDART_AGENT__SCALING_INTERVAL": "3", "HOME": "/h"}
    settings, origins = AgentSettings.explained({}, given)
    assert settings.scaling_interval == 2
    assert origins["scaling_interval"] == "AGILEDART_SCALING__INTERVAL"
    assert AgentSettings.load({}, {**given, "AGILEDART_SCALING__INTERVAL": "4"}).scaling_interval == 4
    with pytest.raises(ConfigurationError, match=r"the environment: there is no setting agent\.scaling_intervall"):
        AgentSettings.load({}, {"AGILEDART_SCALING__INTERVALL": "2", "HOME": "/h"})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[agent]\nzoen = 1\n", "no setting agent.zoen"),
        ("[agent]\nexecutors = 'many'\n", "a whole number"),
        ("[agent]\nexecutors = 0\n", "allowed are 1 to 64"),
        ("[placement]\nstrategy = 'by_taste'\n", "placement_strategy .* allowed are along_path and round_robin"),
        ("[placement]\nmoves = 'maybe'\n", "allowed are off and advise and on and mopa"),
        ("[placement]\nobjective = 'cost'\n", "allowed are response and traffic"),
        ("[agent]\nverbose = 3\n", "true or false"),
        ("[other]\n", "only the table"),
        ("[agent\n", "agent.toml"),
        ("[agent]\npreset = 'papre'\n", "Did you mean paper"),
        ("[preset]\nleaf_count = 8\n", "no setting agent.preset_leaf_count"),
        ("[agent]\nlisten = 'nowhere'\n", "192.168.1.20:9464"),
        ("[agent]\nname = 'a b'\n", "1 to 64 characters"),
        (f"[agent]\nzone = '{'z' * 65}'\n", "agent.zone .* up to 64"),
        ('[agent]\nhost = "a\\nb"\n', "agent.host .* printable"),
        ("[agent]\ncores = -1\n", "allowed are 0"),
        ("[agent]\nlabels = 'gpu,two words'\n", "agent.labels .* letters, digits"),
        ("[agent]\nfragments = '0+2'\n", r"it should look like 4\+2"),
        ("[agent]\nfragments = '4'\n", r"it should look like 4\+2"),
        ("[agent]\nfragments = '17+2'\n", "1 to 16"),
        ("[agent]\nlog_format = 'xml'\n", "console and json"),
        (
            "[executors]\nshare = 'owners'\n",
            r"executors_share is 'owners'; allowed are none and owner\. Did you mean owner\?",
        ),
        ("[executors]\nshare = true\n", "executors_share"),
        ("[executors]\nshare_most = 1\n", r"executors\.share_most is 1; allowed are 2 to 256"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=complaint):
        AgentSettings.load({}, {}, file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml: No such file"):
        AgentSettings.load({}, {}, tmp_path / "none.toml")


def test_the_state_directory_of_a_service_comes_from_systemd() -> None:
    assert default_state_dir({"STATE_DIRECTORY": "/run/x:/run/y"}) == Path("/run/x")
    assert default_state_dir({"XDG_STATE_HOME": "/s", "HOME": "/h"}).name == "agiledart"


def test_addresses_are_parsed() -> None:
    assert split_address("[::1]:80") == ("::1", 80)
    for wrong in ("host", "host:", ":80", "host:99999", "host:http"):
        with pytest.raises(ConfigurationError):
            split_address(wrong)


def test_a_relative_state_directory_is_resolved_the_same_everywhere() -> None:
    assert AgentSettings.load({"state_dir": "here/state"}, {"HOME": "/root"}).state_dir == Path.cwd() / "here" / "state"


def test_metrics_host_names_are_checked() -> None:
    assert AgentSettings.load({"metrics_hosts": "pi1,pi1.lan"}, {"HOME": "/root"}).metrics_hosts == "pi1,pi1.lan"
    with pytest.raises(ConfigurationError, match="metrics_hosts has 'http://x'"):
        AgentSettings.load({"metrics_hosts": "pi1,http://x"}, {"HOME": "/root"})


@pytest.mark.parametrize("metrics", ["", "0.0.0.0:9465", "192.168.1.20:9465"])
def test_a_page_needs_a_loopback_address(metrics: str) -> None:
    assert AgentSettings.load({"web": True, "metrics": "localhost:0"}, {}).web
    with pytest.raises(ConfigurationError, match=r"agent\.web needs agent\.metrics at a loopback address"):
        AgentSettings.load({"web": True, "metrics": metrics}, {})


@pytest.mark.parametrize(
    ("advertise", "address"), [("", ""), ("upnp", ""), ("upnp.example.org:9464", "upnp.example.org:9464")]
)
def test_only_the_word_upnp_asks_the_router(advertise: str, address: str) -> None:
    settings = AgentSettings.load({"advertise": advertise} if advertise else {}, {})
    assert settings.advertised_address == address


def test_own_settings_win_over_the_preset_and_the_preset_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('[preset]\nname = "paper"\n[scaling]\ninterval = 7\n')
    settings, origins = AgentSettings.explained({}, {}, file)
    assert (settings.preset, settings.scaling_policy, settings.scaling_interval) == ("paper", "paper", 7)
    assert (origins["scaling_policy"], origins["scaling_interval"]) == ("preset paper", str(file))
    assert own_settings(settings.preset, vars(settings)) == ["scaling_interval"]
    assert own_settings("", vars(settings)) == []
    by_flag = AgentSettings.load({"preset": ""}, {}, file)
    assert by_flag.scaling_policy == "secant"


def test_the_preset_gives_a_node_the_figures_that_are_shown() -> None:
    config = with_preset(NodeConfig(executors=3), "paper")
    config.validate()
    shown = {name: entry.value for name, entry in node_values("paper", "paper").items()}
    assert (config.overlay.leaf_count, config.executors) == (24, 3)
    assert shown["overlay.leaf_count"] == 24
    assert (shown["overlay.heartbeat_s"], config.overlay.lease_renewal_ns) == (5.0, 5 * 10**9)
    assert (shown["scaling.alpha"], shown["scaling.floor"]) == (0.5, "none")
    assert config.consequence_ns > config.overlay.dead_after_ns
    assert with_preset(NodeConfig(), "") == NodeConfig()
    assert node_values("", "paper") == {}
    assert "scaling.alpha" not in node_values("paper", "secant"), "an own policy has no score of the paper"


def test_how_paths_are_learnt_is_set_in_a_table_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('[paths]\npolicy = "ts4"\nexploration = 0.4\nmemory = 30\n')
    settings = AgentSettings.load({}, {}, file)
    assert (settings.paths_policy, settings.paths_exploration, settings.paths_memory) == ("ts4", 0.4, 30)
    assert AgentSettings.load({"preset": "paper"}, {}).paths_policy == "paper"
    for setting, value, text in (
        ("policy", '"plannd"', "Did you mean planned?"),
        ("exploration", "1.5", "allowed are 0 to 1"),
        ("memory", "0", "allowed are 1 to 3600"),
    ):
        file.write_text(f"[paths]\n{setting} = {value}\n")
        with pytest.raises(ConfigurationError, match=re.escape(text)):
            AgentSettings.load({}, {}, file)
