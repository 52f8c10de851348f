"""States the causes of the open real logs, as people who saw these failures explained them."""

from __future__ import annotations

from opsk.postmortem.values import FailureClass

CAUSES = {
    "bs_meg_n64_cancelled.log": FailureClass.TIME_LIMIT,
    "gh_zetta671_time_limit.log": FailureClass.TIME_LIMIT,
    "gh_nccl1698_ib_completion.log": FailureClass.FABRIC,
    "gh_llamafactory7396_watchdog.log": FailureClass.COLLECTIVE_HANG,
    "gh_ofa271_watchdog_old.log": FailureClass.COLLECTIVE_HANG,
    "gpud_dmesg_libnccl_segfault.log": FailureClass.SOFTWARE,
    "gpud_dmesg_xid119.log": FailureClass.GPU_HARDWARE,
    "gh_gpud46_xid13_109.log": FailureClass.SOFTWARE,
    "azure_syslog_1dev_6flap.log": FailureClass.FABRIC,
}
