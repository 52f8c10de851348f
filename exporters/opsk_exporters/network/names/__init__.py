"""Which file of an RDMA port or device becomes which metric?

``ports`` has what every port has, ``drivers`` what drivers add of their own.
"""

from opsk_exporters.network.names.drivers import HARDWARE
from opsk_exporters.network.names.ports import COUNTERS, EXTENDED, MetricName

__all__ = ["COUNTERS", "EXTENDED", "HARDWARE", "MetricName"]
