"""The chart: it renders, its settings are those of an agent, and its pods keep the rules of restricted pod security."""

import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from agiledart_agent.settings import AgentSettings
from tests.unit.deploy.expressions import DEPLOY

CHART = DEPLOY / "helm" / "agiledart"
HELM = shutil.which("helm")

pytestmark = pytest.mark.skipif(HELM is None, reason="no helm here (go install helm.sh/helm/v3/cmd/helm@latest)")


def rendered(*settings: str) -> dict[str, dict[str, Any]]:
    assert HELM is not None
    words = [HELM, "template", "mesh", str(CHART), "--kube-version", "1.35.0", *settings]
    made = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert made.returncode == 0, made.stderr
    return {document["kind"]: document for document in yaml.safe_load_all(made.stdout) if document}


def test_pods_keep_restricted_pod_security_and_agents_know_their_settings() -> None:
    made = rendered("--set", "token.existingSecret=mine", "--set", "executors=2", "--set", "podMonitor.enabled=true")
    assert set(made) == {"DaemonSet", "PodMonitor"}
    pod = made["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert all(set(volume) & {"emptyDir", "secret"} for volume in pod["volumes"])
    prefix = "AGILEDART_AGENT__"
    names = {row["name"].removeprefix(prefix).lower() for row in container["env"] if row["name"].startswith(prefix)}
    assert names == {"name", "zone", "join", "listen", "advertise", "metrics", "executors"}
    assert names <= {field.name for field in fields(AgentSettings)}


def test_a_token_in_values_becomes_a_secret_and_none_is_refused() -> None:
    assert rendered("--set", "token.value=adart1x")["Secret"]["stringData"] == {"join-token": "adart1x"}
    with pytest.raises(AssertionError, match="agiledart token create"):
        rendered()


def test_chart_and_plain_manifest_are_the_same() -> None:
    made = rendered(
        "--set", "token.existingSecret=agiledart-join-token", "--set", "image.repository=REGISTRY/agiledart"
    )
    plain = yaml.safe_load((DEPLOY / "kubernetes" / "agiledart.yaml").read_text())
    text = yaml.safe_dump(made["DaemonSet"]).replace("mesh", "agiledart")
    assert yaml.safe_load(text) == plain, "run: deploy/helm/check.sh --write"


@pytest.mark.soak
@pytest.mark.skipif(
    shutil.which("kubeconform") is None or shutil.which("go") is None, reason="no kubeconform or go here"
)
def test_kubeconform_accepts_chart_and_manifest() -> None:
    ran = subprocess.run([CHART.parent / "check.sh"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Valid: 3, Invalid: 0, Errors: 0, Skipped: 1" in ran.stdout


def test_no_value_of_the_chart_is_without_use() -> None:
    templates = "".join(path.read_text() for path in Path(CHART / "templates").iterdir())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert [name for name in values if f".Values.{name}" not in templates] == []
