"""Are the provisioning files, ours and those of the Ansible role, of the form that Grafana reads?

The keys are those of Grafana's page on provisioning (administration/provisioning). It passes over a key that it does
not know without a word, so that a misspelt one is found nowhere else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from jinja2 import Environment, StrictUndefined
from pydantic import BaseModel, ConfigDict, ValidationError


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class FileOptions(Strict):
    path: str
    foldersFromFilesStructure: bool = False  # noqa: N815


class Provider(Strict):
    name: str
    type: Literal["file"]
    options: FileOptions
    orgId: int = 1  # noqa: N815
    folder: str = ""
    folderUid: str = ""  # noqa: N815
    disableDeletion: bool = False  # noqa: N815
    updateIntervalSeconds: int = 10  # noqa: N815
    allowUiUpdates: bool = False  # noqa: N815


class Providers(Strict):
    apiVersion: Literal[1]  # noqa: N815
    providers: list[Provider]


class PrometheusOptions(Strict):
    timeInterval: str = "15s"  # noqa: N815
    httpMethod: Literal["GET", "POST"] = "POST"  # noqa: N815
    prometheusType: str = "Prometheus"  # noqa: N815
    manageAlerts: bool = True  # noqa: N815


class Datasource(Strict):
    name: str
    type: Literal["prometheus"]
    access: Literal["proxy"]
    url: str
    uid: str = ""
    orgId: int = 1  # noqa: N815
    isDefault: bool = False  # noqa: N815
    editable: bool = False
    basicAuth: bool = False  # noqa: N815
    basicAuthUser: str = ""  # noqa: N815
    jsonData: PrometheusOptions = PrometheusOptions()  # noqa: N815
    secureJsonData: dict[str, str] = {}  # noqa: N815


class Datasources(Strict):
    apiVersion: Literal[1]  # noqa: N815
    datasources: list[Datasource]


def datasources(root: Path) -> dict[str, Any]:
    """Our file, and what the role makes of its template."""
    ours = (root / "deploy/grafana/provisioning/datasources.yml").read_text()
    template = (root / "deploy/ansible/roles/opsk/templates/datasource.yml.j2").read_text()
    environment = Environment(undefined=StrictUndefined)
    environment.filters["to_json"] = environment.filters["tojson"]
    theirs = environment.from_string(template).render(opsk_prometheus_url="http://127.0.0.1:9090")
    return {"ours": yaml.safe_load(ours), "the role's": yaml.safe_load(theirs)}


def test_grafana_knows_every_key_of_the_dashboards_provider(root: Path) -> None:
    read = Providers.model_validate(yaml.safe_load((root / "deploy/grafana/provisioning/dashboards.yml").read_text()))
    (provider,) = read.providers
    assert provider.options.path.startswith("/")
    role = (root / "deploy/ansible/roles/opsk/tasks/grafana.yml").read_text()
    assert f"{provider.options.path.removeprefix('/')}\n" in role, "the role puts dashboards where the provider looks"


@pytest.mark.parametrize("whose", ["ours", "the role's"])
def test_grafana_knows_every_key_of_the_data_source(root: Path, whose: str) -> None:
    read = Datasources.model_validate(datasources(root)[whose])
    (source,) = read.datasources
    assert source.isDefault
    assert source.jsonData.timeInterval == "15s", "as scrape.yml has it"


def test_both_files_say_the_same(root: Path) -> None:
    found = datasources(root)
    assert found["ours"] == found["the role's"]


def test_a_misspelt_key_would_be_found(root: Path) -> None:
    document = datasources(root)["ours"]
    document["datasources"][0]["isdefault"] = True
    with pytest.raises(ValidationError):
        Datasources.model_validate(document)
