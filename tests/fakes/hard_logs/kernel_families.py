"""Lists what kernels and daemons of nodes print when hardware, memory or a file system fails, by the place it is made."""

from __future__ import annotations

# ruff: noqa: E501 -- lines are quoted as kernels print them
from tests.fakes.hard_logs.families import Family

KERNEL_FAMILIES: tuple[Family, ...] = (
    Family(
        failure="gpu_hardware",
        source="NVIDIA Xid catalogue; open-gpu-kernel-modules; linux pcie/aer.c",
        messages=(
            "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "NVRM: Xid (PCI:0000:9b:00): 48, pid=3112, name=python, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 1, subpartition 0.",
            "NVRM: Xid (PCI:0000:9b:00): 95, pid=3112, name=python, Uncontained: LTC TAG (0x7,0x0). RST: Yes, D-RST: No",
            "NVRM: Xid (PCI:0000:9b:00): 94, pid=3112, name=python, Contained: LTC TAG (0x7,0x0). RST: No, D-RST: No",
            "NVRM: Xid (PCI:0000:9b:00): 64, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x00000000000a4e5c) failed to be remapped",
            "NVRM: Xid (PCI:0000:9b:00): 119, pid=3112, name=python, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a6a 0x98).",
            "NVRM: Xid (PCI:0000:9b:00): 120, pid='<unknown>', name=<unknown>, GSP task exception: Load access page fault (cause:0xd)",
            "NVRM: Xid (PCI:0000:9b:00): 140, pid='<unknown>', name=<unknown>, An uncorrectable ECC error detected (possible firmware handling failure)",
            "NVRM: GPU2 _kgspLogRpcTimeout: ********************************* GSP Timeout **********************************",
            "NVRM: GPU2 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 71 heartbeat 3 heartbeatWithOffsetMs 66 diff 6070 timeout 5200",
            "NVRM: The NVIDIA GPU 0000:9b:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\nNVRM: fallen off the bus and is not responding to commands.",
            "NVRM: GPU 0000:9b:00.0: RmInitAdapter failed! (0x62:0x65:1860)",
            "amdgpu 0000:c1:00.0: amdgpu: 1 uncorrectable hardware errors detected in gfx block",
            "amdgpu 0000:c1:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
            "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
            "amdgpu 0000:c1:00.0: amdgpu: GPU reset(3) failed",
            "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.0.0 timeout, signaled seq=4096, emitted seq=4098",
        ),
    ),
    Family(
        failure="software",
        source="linux drivers/gpu/drm/amd/amdgpu/gmc_v9_0.c, gmc_v10_0.c, gmc_v11_0.c",
        messages=(
            "amdgpu 0000:c1:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32783)",
            "amdgpu 0000:c1:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:200)",
        ),
    ),
    Family(
        failure="nvlink",
        source="NVIDIA Xid catalogue and Fabric Manager guide; open-gpu-kernel-modules src/nvidia",
        messages=(
            "NVRM: Xid (PCI:0000:9b:00): 74, pid=3112, name=python, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
            "NVRM: Xid (PCI:0000:9b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
            "NVRM: Xid (PCI:0000:9b:00): 45, pid=3112, name=python, Ch 00000008 caused by previous Xid 149",
            "nvidia-nvswitch2: SXid (PCI:0000:84:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 19084, Fatal, Link 11 AN1 Heartbeat Timeout Error",
        ),
    ),
    Family(
        failure="fabric",
        source="linux drivers/net/ethernet/mellanox/mlx5, infiniband/core; rdma-core",
        messages=(
            "mlx5_core 0000:ab:00.0: poll_health:821:(pid 0): Fatal error 1 detected",
            "mlx5_core 0000:ab:00.0: mlx5_health_try_recover:338:(pid 4711): health recovery failed: interface is not functional",
            "mlx5_core 0000:ab:00.0: wait_func:1137:(pid 4711): ACCESS_REG(0x805) timeout. Will cause a leak of a command resource",
            "mlx5_core 0000:ab:00.0: print_health_info:431:(pid 0): assert_var[0] 0x00000001",
            "mlx5_core 0000:ab:00.0 ib0: Link down",
            "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
        ),
    ),
    Family(
        failure="host_memory",
        source="linux mm/oom_kill.c",
        messages=(
            "Memory cgroup out of memory: Killed process 3112 (python) total-vm:412000000kB, anon-rss:258000000kB, file-rss:4000kB, shmem-rss:0kB, UID:1000 pgtables:512000kB oom_score_adj:0",
            "Out of memory: Killed process 3112 (python) total-vm:412000000kB, anon-rss:258000000kB, file-rss:4000kB, shmem-rss:0kB, UID:1000 pgtables:512000kB oom_score_adj:0",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg=/slurm/uid_1000/job_4711,task_memcg=/slurm/uid_1000/job_4711/step_0,task=python,pid=3112,uid=1000",
            "Task in /slurm/uid_1000/job_4711/step_0 killed as a result of limit of /slurm/uid_1000/job_4711",
        ),
    ),
    Family(
        failure="node",
        source="linux arch/x86/kernel/cpu/mce, drivers/edac, mm/memory-failure.c, kernel/panic.c, fs/file_table.c",
        messages=(
            "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1f4 offset:0x0 grain:32)",
            "mce: Uncorrected hardware memory error in user-access at 3f7d4ac0",
            "Memory failure: 0x3f7d4: recovery action for dirty LRU page: Recovered",
            "{1}[Hardware Error]: event severity: fatal",
            "Kernel panic - not syncing: Fatal exception in interrupt",
            "VFS: file-max limit 1048576 reached",
            "pcieport 0000:80:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
        ),
    ),
    Family(
        failure="storage",
        source="linux net/sunrpc, fs/nfs, block, drivers/nvme, fs/ext4, fs/xfs, net/ceph; Lustre ptlrpc, mdc, osc; Storage Scale mmfsd; BeeGFS client_module",
        messages=(
            "nfs: server nas1 not responding, still trying",
            "nfs: server nas1 not responding, timed out",
            "NFS: nfs4_reclaim_open_state: unhandled error -10026",
            "NFS: nfs4_reclaim_open_state: Lock reclaim failed!",
            "LustreError: 167-0: scratch-OST0012-osc-ffff: This client was evicted by scratch-OST0012; in progress operations using this service will fail.",
            "LustreError: 11-0: scratch-MDT0000-mdc-ffff: operation ldlm_enqueue to node 10.0.0.5@o2ib failed: rc = -107",
            "Lustre: scratch-OST0003-osc-ffff: Connection to scratch-OST0003 (at 10.0.0.5@o2ib) was lost; in progress operations using this service will wait for recovery to complete",
            "blk_update_request: I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
            "Buffer I/O error on dev dm-3, logical block 0, async page read",
            "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
            "nvme nvme1: I/O 12 QID 3 timeout, reset controller",
            "nvme nvme1: Disabling device after reset failure: -19",
            "md/raid1:md0: Disk failure on sdb1, disabling device.",
            "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm python: reading directory lblock 0",
            "EXT4-fs (sda1): Remounting filesystem read-only",
            'XFS (nvme0n1p1): metadata I/O error in "xfs_da_read_buf+0xd9/0x120 [xfs]" at daddr 0x3 len 1 error 5',
            "XFS (dm-0): Corruption of in-memory data (0x8) detected at xfs_trans_cancel+0x14f/0x170 [xfs] (fs/xfs/xfs_trans.c:1098).  Shutting down filesystem.",
            "BTRFS error (device sdb1): bdev /dev/sdb1 errs: wr 3, rd 0, flush 0, corrupt 0, gen 0",
            "beegfs: python(3112) [NodeConn (acquire stream)] >> Connect failed: storage01@10.0.0.5:8003",
            "INFO: task python:3112 blocked for more than 120 seconds.\nCall Trace:\n __schedule+0x2d0/0x8a0\n schedule+0x4e/0xb0\n cl_sync_io_wait+0x1a1/0x3b0 [obdclass]",
            "INFO: task python:3112 blocked for more than 122 seconds.\nCall Trace:\n __schedule+0x2d0/0x8a0\n rpc_wait_bit_killable+0x1e/0xb0 [sunrpc]",
        ),
    ),
    Family(
        failure="software",
        source="linux arch/x86/mm/fault.c, arch/x86/kernel/traps.c; NVIDIA Xid catalogue; amdgpu gmc_v9_0.c",
        messages=(
            "python[3112]: segfault at 8 ip 00007f1f2a3b4c5d sp 00007ffd1a2b3c40 error 4 in libtorch_cuda.so[7f1f20000000+8000000]",
            "traps: python[3112] general protection fault ip:7f1f2a3b4c5d sp:7ffd1a2b3c40 error:0 in libc.so.6[7f1f2a000000+195000]",
            "NVRM: Xid (PCI:0000:9b:00): 31, pid=3112, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f1f_2a3b4000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
            "NVRM: Xid (PCI:0000:9b:00): 13, pid=3112, name=python, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): Out Of Range Address",
            "amdgpu 0000:c1:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32770, for process python pid 3112 thread python pid 3112)",
        ),
    ),
)
