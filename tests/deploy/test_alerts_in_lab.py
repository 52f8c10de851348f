"""Which alerts does a real Prometheus raise for the faults of the made-up cluster, and can people read them?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.prometheus_server import LabPrometheus, lab_prometheus, programs, serving

EXPECTED = {
    "OpskCollectorFailing": "node4",
    "OpskGpuLost": "node4",
    "OpskGpuRecoveryAction": "node4",
    "OpskGpuServiceDown": "node4",
    "OpskGpuThermalThrottle": "node2",
    "OpskInfinibandCongestion": "node2",
    "OpskInfinibandErrors": "node4",
    "OpskInfinibandPortDown": "node4",
    "OpskInfinibandPortSlow": "node4",
    "OpskKernelLogUnreadable": "node4",
    "OpskNvlinkDown": "node4",
    "OpskNvlinkErrors": "node4",
    "OpskRowRemapPending": "node4",
    "OpskStragglerGpu": "node2",
    "OpskStrangerOnGpu": "node4",
    "OpskXidDrain": "node4",
}
"""Alert, and the node that it has to name: see ``lab_node`` for what was broken."""
OF_JOBS = {"OpskGpusIdle": "4712_3", "OpskJobSlower": "4711"}


@pytest.fixture(scope="module")
def alerts(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """Alerts, pending or firing, once every rule was evaluated."""
    found = programs()
    if found is None:
        pytest.skip("prometheus (Debian package prometheus) is not installed")
    folder, ours = tmp_path_factory.mktemp("alerts"), root / "deploy" / "prometheus"
    with lab_prometheus(folder, (ours / "opsk-rules.yml",)):
        pass
    config = folder / "with-rules.yml"
    files = [str(ours / name) for name in ("opsk-rules.yml", "opsk-alerts.yml")]
    config.write_text(f"global: {{evaluation_interval: 1s}}\nrule_files: {files}\n", encoding="utf-8")
    with serving(found[0], config, folder / "data") as url:
        prometheus = LabPrometheus(url, 0.0, time.time())
        for _attempt in range(300):
            rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
            raised = {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}
            if all(rule["health"] == "ok" for rule in rules) and raised >= EXPECTED.keys():
                break
            time.sleep(0.1)
        assert not [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] == "err"]
        yield prometheus.ask("alerts")["alerts"]


def test_each_fault_raises_its_alert(alerts: list[dict[str, Any]]) -> None:
    raised = {(alert["labels"]["alertname"], alert["labels"].get("node")) for alert in alerts}
    assert raised >= set(EXPECTED.items())
    assert {name for name, _node in raised} <= EXPECTED.keys() | OF_JOBS.keys()
    of_jobs = {(alert["labels"]["alertname"], alert["labels"].get("job")) for alert in alerts}
    assert of_jobs >= set(OF_JOBS.items())


def test_texts_have_their_values(alerts: list[dict[str, Any]]) -> None:
    for alert in alerts:
        for text in alert["annotations"].values():
            assert "error expanding" not in text
            assert "no value" not in text
            assert "{{" not in text
