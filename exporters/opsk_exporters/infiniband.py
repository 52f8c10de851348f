"""Which metrics do the RDMA ports of a node give?

Names say what is counted, from the node's point of view (received, transmitted); each help text says what the kernel
or the device counts. Which file becomes which metric stands in the tables of ``infiniband_names``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import Metric

from opsk.telemetry.infiniband import DeviceSample, InfinibandSource, PortSample
from opsk_exporters.collector import NoDataError
from opsk_exporters.families import Families
from opsk_exporters.infiniband_names import COUNTERS, EXTENDED, HARDWARE, MetricName


class InfinibandCollector:
    """InfiniBand and RoCE ports: speed, state and every counter that is known by name.

    Parameters
    ----------
    source
        Where the samples come from.
    """

    name = "infiniband"

    def __init__(self, source: InfinibandSource) -> None:
        self._source = source

    def collect(self) -> Iterable[Metric]:
        """Read all ports once."""
        devices = self._source.devices()
        if not devices:
            raise NoDataError("the kernel knows no RDMA device")
        families = Families()
        for device in devices:
            _add_device(families, device)
            for port in device.ports:
                _add_port(families, port)
        return families.all()


def _add_device(families: Families, device: DeviceSample) -> None:
    """Add what is said of a whole device."""
    families.info(
        "opsk_infiniband_device_info",
        "RDMA device: board (PSID), firmware and hardware type, as far as the driver tells.",
        device=device.device,
        board_id=device.board_id,
        firmware=device.firmware,
        hca_type=device.hca_type,
        node_guid=device.node_guid,
    )


def _add_port(families: Families, port: PortSample) -> None:
    """Add one port."""
    labels = {"device": port.device, "port": str(port.port)}
    families.info(
        "opsk_infiniband_port_info",
        "RDMA port: link layer (InfiniBand or Ethernet), width and generation of the link, network interface.",
        **labels,
        link_layer=port.link_layer,
        speed=port.speed,
        netdev=port.netdev,
    )
    gauges = (
        ("state", "Logical state: 1 down, 2 initialising, 3 armed, 4 active, 5 active, deferred.", port.state),
        (
            "physical_state",
            "Physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 error recovery, 7 test.",
            port.phys_state,
        ),
        (
            "rate_bytes_per_second",
            "Speed of the link as the driver states it; up to QDR this includes the 8b/10b line code.",
            port.rate_bytes_per_s,
        ),
        ("lid", "Local identifier that the subnet manager assigned; absent where there is none.", port.lid),
        ("subnet_manager_lid", "Local identifier of the port's subnet manager.", port.sm_lid),
        (
            "refresh_interval_seconds",
            "The device refreshes its hardware counters this seldom; faster scrapes see the same values.",
            port.counter_lifespan_s,
        ),
        (
            "unreadable_files",
            "Files of the port that are there but give no value (N/A, an error); their series are absent.",
            len(port.unreadable),
        ),
    )
    for what, help_text, value in gauges:
        families.gauge(f"opsk_infiniband_port_{what}", help_text, value, **labels)
    for names, values in ((COUNTERS, port.counters), (EXTENDED, port.extended), (HARDWARE, port.hardware)):
        _add_counters(families, names, values, labels)


def _add_counters(
    families: Families, names: Mapping[str, MetricName], values: Mapping[str, int], labels: Mapping[str, str]
) -> None:
    """Add the counters of one folder that have a name; a file without one has no known unit and is left out."""
    for file_name, metric in names.items():
        families.counter(f"opsk_infiniband_port_{metric.what}_total", metric.help_text, values.get(file_name), **labels)
