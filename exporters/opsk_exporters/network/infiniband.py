"""Exports the metrics of a node's RDMA ports.

Names are from the node's point of view (received, transmitted); each help text says what the kernel or the device
counts. The tables of `opsk_exporters.network.names` map files to metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from prometheus_client import Metric

from opsk.metrics import names as metric_names
from opsk.telemetry.network.infiniband import (
    WORD_TICK_BYTES,
    CongestionMeter,
    DeviceSample,
    InfinibandSource,
    PortSample,
    SysfsInfiniband,
)
from opsk.telemetry.network.rails_file import PortPlace, RailsFile, RailsReading
from opsk.text import escape
from opsk_exporters.core.collector import NoDataError
from opsk_exporters.core.exposition import Families
from opsk_exporters.network.names import COUNTERS, EXTENDED, HARDWARE, MetricName

LOG = logging.getLogger("opsk.exporter")
DEFAULT_RAILS_FILE = Path("/etc/opsk/rails.json")
_NO_PLACE = PortPlace(guid="", port=0)


def make(
    sysfs: Path, *, rails_file: Path = DEFAULT_RAILS_FILE, tick_bytes: float = WORD_TICK_BYTES
) -> InfinibandCollector:
    """Return the collector for a sysfs; a rails file that is not there only leaves its labels empty."""
    return InfinibandCollector(SysfsInfiniband(sysfs), rails=RailsFile(rails_file), meter=CongestionMeter(tick_bytes))


class InfinibandCollector:
    """InfiniBand and RoCE ports: speed, state, congestion, place in the fabric, every counter that is known by name.

    Parameters
    ----------
    source
        Where the samples come from.
    rails
        The site's rails file, if any.
    meter
        Computes the congestion from two samples of a port.
    """

    name = "infiniband"

    def __init__(
        self, source: InfinibandSource, rails: RailsFile | None = None, meter: CongestionMeter | None = None
    ) -> None:
        self._source = source
        self._rails = rails
        self._meter = meter or CongestionMeter()
        self._unknown: set[str] = set()

    def collect(self) -> Iterable[Metric]:
        """Read all ports once."""
        devices = self._source.devices()
        if not devices:
            raise NoDataError("the kernel knows no RDMA device")
        families = Families()
        rails = self._read_rails(families, devices)
        for device in devices:
            _add_device(families, device)
            for port in device.ports:
                _add_port(families, port, _find_place(rails, device, port))
                _add_congestion(families, port, self._meter.ratio(port))
        self._meter.forget_others({(port.device, port.port) for device in devices for port in device.ports})
        self._name_unknown(devices)
        return families.all()

    def _read_rails(self, families: Families, devices: Iterable[DeviceSample]) -> RailsReading:
        """Read the places of this node's ports, and add the state of the rails file."""
        if self._rails is None:
            return RailsReading()
        guids = {device.node_guid for device in devices} | {port.port_guid for each in devices for port in each.ports}
        reading = self._rails.read(guid for guid in guids if guid is not None)
        families.gauge(
            "opsk_infiniband_rails_file_ports",
            "Ports of this node whose place is in the rails file; absent where there is no such file.",
            None if reading.modified is None else len(reading.places),
        )
        families.gauge(
            "opsk_infiniband_rails_file_modified_timestamp_seconds",
            "When the rails file was written, which opsk fabric --rails-file makes of a dump.",
            reading.modified,
        )
        families.gauge(
            "opsk_infiniband_rails_file_damaged",
            "1 when the rails file exists and is not valid, or is damaged in the lines of this node's ports.",
            None if reading.modified is None else float(bool(reading.problem)),
        )
        return reading

    def _name_unknown(self, devices: Iterable[DeviceSample]) -> None:
        """Log once which counters have no known unit: only their number is exported."""
        unknown = {name for device in devices for port in device.ports for name in _list_unknown(port)}
        unknown |= {name for device in devices for name in device.hardware if name not in HARDWARE}
        if unknown - self._unknown:
            LOG.info("counters without a known meaning: %s", escape(", ".join(sorted(unknown - self._unknown))))
            self._unknown |= unknown


def _find_place(rails: RailsReading, device: DeviceSample, port: PortSample) -> PortPlace:
    """Return where a port is cabled to: by the GUID of its device, else (tables of port GUIDs) by its own."""
    for key in ((device.node_guid, port.port), (port.port_guid, port.port), (port.port_guid, 1)):
        if key[0] is not None and (place := rails.places.get((key[0], key[1]))) is not None:
            return place
    return _NO_PLACE


def _list_unknown(port: PortSample) -> list[str]:
    """Return the counter files of a port that stand in none of the tables."""
    pairs = ((port.counters, COUNTERS), (port.extended, EXTENDED), (port.hardware, HARDWARE))
    return [name for values, names in pairs for name in values if name not in names]


def _format_number(value: int | None) -> str:
    """Write a number as the value of a label; nothing for none."""
    return "" if value is None else str(value)


def _add_device(families: Families, device: DeviceSample) -> None:
    """Add the metrics of a whole device."""
    kind = {None: "", True: "virtual", False: "physical"}[device.virtual_function]
    families.info(
        "opsk_infiniband_device_info",
        "RDMA device: board (PSID), firmware, hardware type, GUID, PCI address, NUMA node, and whether its function is "
        "physical or virtual, as far as the driver reports it.",
        device=device.device,
        board_id=device.board_id,
        firmware=device.firmware,
        hca_type=device.hca_type,
        node_guid=device.node_guid,
        pci=device.pci,
        numa_node=_format_number(device.numa_node),
        function=kind,
    )
    _add_counters(families, "device", HARDWARE, device.hardware, {"device": device.device})


def _add_port(families: Families, port: PortSample, place: PortPlace) -> None:
    """Add one port."""
    labels = {"device": port.device, "port": str(port.port)}
    families.info(
        metric_names.INFINIBAND_PORT_INFO,
        "RDMA port: link layer (InfiniBand or Ethernet), width and generation, GUID, network interface and its bond; "
        "rail, leaf, switch port and role from the rails file, empty where it does not have them.",
        **labels,
        link_layer=port.link_layer,
        speed=port.speed,
        netdev=port.netdev,
        bond=port.bond,
        gid=port.gid if port.link_layer == "Ethernet" else None,
        port_guid=port.port_guid,
        rail=_format_number(place.rail),
        leaf=place.leaf,
        switch=place.switch,
        switch_port=_format_number(place.switch_port),
        role=place.role,
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
        (
            "saturated_counters",
            "Counters of the port that stand at the largest value of their field (IBA PortCounters: 4 to 32 bits) and "
            "stay there until someone clears them; each is named in opsk_infiniband_port_saturated.",
            len(port.saturated),
        ),
        (
            "unknown_files",
            "Counter files of the port whose meaning nobody has published; they are not exported.",
            len(_list_unknown(port)),
        ),
    )
    for what, help_text, value in gauges:
        families.gauge(f"opsk_infiniband_port_{what}", help_text, value, **labels)
    for name in port.saturated:
        families.gauge(
            "opsk_infiniband_port_saturated",
            "1 for a counter (by its file) that stands at the largest value of its field; others have no series.",
            1,
            **labels,
            counter=name.rpartition("/")[2],
        )
    for names, values in ((COUNTERS, port.counters), (EXTENDED, port.extended), (HARDWARE, port.hardware)):
        _add_counters(families, "port", names, values, labels)


def _add_congestion(families: Families, port: PortSample, ratio: float | None) -> None:
    """Add the share of a port's ticks with data in which it had no credit."""
    families.gauge(
        metric_names.INFINIBAND_PORT_CONGESTION_RATIO,
        "Share, since the scrape before, of what the port could have sent while it had data that it could not for lack "
        "of credit (transmit_wait_ticks against bytes sent): 0 is never, 1 always; compare ports of one kind of "
        "device, since the length of a tick is the device's; absent on Ethernet and where the counter stands still.",
        ratio,
        device=port.device,
        port=str(port.port),
    )


def _add_counters(
    families: Families, of: str, names: Mapping[str, MetricName], values: Mapping[str, int], labels: Mapping[str, str]
) -> None:
    """Add the counters of one folder that have a name; a file without one has no known unit and is left out.

    Where two files of one device mean the same, the first one counts: a series comes only once.
    """
    written: set[str] = set()
    for file_name, value in values.items():
        metric = names.get(file_name)
        if metric is None or metric.what in written:
            continue
        written.add(metric.what)
        if metric.kind == "gauge":
            families.gauge(f"opsk_infiniband_{of}_{metric.what}", metric.help_text, value, **labels)
        else:
            families.counter(f"opsk_infiniband_{of}_{metric.what}_total", metric.help_text, value, **labels)
