"""Maps the counter files of RDMA ports and devices to metrics.

``ports`` has the files that every port has, ``drivers`` those that drivers add.
"""

from opsk_exporters.network.names.drivers import HARDWARE
from opsk_exporters.network.names.ports import COUNTERS, EXTENDED, MetricName

__all__ = ["COUNTERS", "EXTENDED", "HARDWARE", "MetricName"]
