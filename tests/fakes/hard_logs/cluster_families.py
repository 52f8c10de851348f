"""Lists what batch systems, Kubernetes, networks and accelerators print when a job ends there, by the place it is made.

They are written after the programs' sources and manuals, with values of our own.
"""

from __future__ import annotations

# ruff: noqa: E501 -- lines are quoted as programs print them
from tests.fakes.hard_logs.families import Family

CLUSTER_FAMILIES: tuple[Family, ...] = (
    Family(
        failure="node",
        source="Slurm src/common/slurm_protocol_api.c, src/srun/libsrun/step_io.c, src/slurmd/slurmstepd/mgr.c, src/plugins/job_container/tmpfs, src/common/slurm_errno.c",
        messages=(
            "srun: error: Aborting, io error with slurmstepd on node 3",
            "srun: error: slurm_receive_msgs: [[{node}]:6818] failed: Socket timed out on send/recv operation",
            "srun: error: slurm_receive_msg: Transport endpoint is not connected",
            "srun: error: slurm_receive_msg: Zero Bytes were transmitted or received",
            "[2026-01-05T11:00:00.539] error: slurm_receive_msg_and_forward: Zero Bytes were transmitted or received",
            "srun: error: Application launch failed: Job credential expired",
            "srun: error: Application launch failed: Invalid job credential",
            "srun: error: Aborting, can not test connection to node 3.",
            "slurmstepd: error: unable to instantiate job 4711 cgroup",
            "slurmstepd: error: Failed to invoke task plugins: one of task_p_pre_setuid functions returned error",
            "slurmstepd: error: _spawn_job_container: error in container/namespace/tmpfs",
            "slurmstepd: error: container_p_join: open failed for /var/spool/slurm/4711/.ns: No such file or directory",
            "slurmstepd: error: xcgroup_instantiate: unable to create cgroup '/sys/fs/cgroup/memory/slurm/uid_1000/job_4711' : No space left on device",
        ),
    ),
    Family(
        failure="fabric",
        source="Slurm src/plugins/switch/hpe_slingshot",
        messages=("slurmstepd: error: switch_p_job_preinit: cxi_svc_alloc failed: No space left on device",),
    ),
    Family(
        failure="time_limit",
        source="LSF bjobs exit reasons; OpenPBS src/resmom; Grid Engine msg_execd.h; flux-core job attach; Slurm salloc.c; kubernetes job_controller.go",
        messages=(
            "TERM_CPULIMIT: job killed after reaching LSF CPU usage limit.",
            "TERM_DEADLINE: job killed after reaching deadline.",
            "=>> PBS: job killed: cput 146 exceeded limit 120",
            "job 4711.1 exceeded hard wallclock time - initiate terminate method",
            "failed      37  : qmaster enforced h_rt, h_cpu, or h_vmem limit",
            "30.118s: job.exception type=timeout severity=0 resource allocation expired",
            "salloc: Job 4711 has exceeded its time limit and its allocation has been revoked.",
            "Warning  DeadlineExceeded  10s  job-controller  Job was active longer than specified deadline",
        ),
    ),
    Family(
        failure="host_memory",
        source="Grid Engine msg_execd.h; flux-core src/shell/oom.c; HTCondor starter; kubernetes kubelet eviction; Slurm jobacct_gather",
        messages=(
            'job 4711.1 exceeds job hard limit "h_vmem" of queue "all.q@{node}" (9000000.00000 > limit:8000000.00000) - sending SIGKILL',
            "29.475s: flux-shell[0]: ERROR: oom: Memory cgroup out of memory: killed 1 task on {node}.",
            "012 (4711.000.000) 01/05 11:00:00 Job was held.\n\tError from slot1@{node}: Docker job has gone over memory limit of 2048 Mb",
            "    State:          Terminated\n      Reason:       OOMKilled\n      Exit Code:    137",
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container trainer was using 60Gi, request is 0",
            "slurmstepd: error: Step 4711.0 exceeded virtual memory limit (9000000 > 8000000), being killed",
        ),
    ),
    Family(
        failure="numeric",
        source="apex amp/scaler.py LossScaler.update_scale: what a loss scale comes to that no step fits",
        messages=(
            "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 0.0078125",
            "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 1.0587911840678754e-22",
            "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 0.0",
        ),
    ),
    Family(
        failure="software",
        source="Open MPI ompi/mpi/help-mpi-runtime.txt",
        messages=(
            "Open MPI has detected that this process has attempted to initialize\nMPI (via MPI_INIT or MPI_INIT_THREAD) more than once.  This is\nerroneous.",
            "The function MPI_FINALIZE was invoked before MPI was initialized in a\nprocess on host {node}, PID 3112.",
        ),
    ),
    Family(
        failure="node",
        source="LSF bjobs exit reasons; OpenPBS src/resmom/mom_comm.c; HTCondor job event log; flux-core; kubernetes nodelifecycle; MPICH hydra; ray monitor, gcs_actor_manager, exceptions.py",
        messages=(
            "TERM_ZOMBIE: LSF lost track of the job.",
            "=>> PBS: job killed: node 3 ({node}) requested job terminate, 'EOF' (code 1099) - received SISTER_EOF attempting to communicate with sister MOM's",
            "024 (4711.000.000) 01/05 11:00:00 Job reconnection failed\n    Can not reconnect to slot1@{node}, rescheduling job",
            "30.118s: job.exception type=node-failure severity=0 lost contact with {node}",
            "2026-01-05 11:00:00,160 ERROR worker.py:1767 -- The node with client ID 05271efb has been marked dead because the monitor has missed too many heartbeats from it.",
            "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n\tclass_name: Trainer\nThe actor is dead because its node has died. Node Id: 2eea4cfb",
            "ray.exceptions.ObjectLostError: Failed to retrieve object 00ffffff.\n\nAll copies of 00ffffff have been lost due to node failure.",
            "Warning  NodeNotReady  10s  node-controller  Node is not ready",
            "[mpiexec@{peer}] control_cb (pm/pmiserv/pmiserv_cb.c:208): assert (!closed) failed",
        ),
    ),
    Family(
        failure="cancelled",
        source="Torque src/server/req_delete.c; HTCondor job event log 009; flux-core; LSF bjobs exit reasons",
        messages=(
            "Job deleted at request of ada@login1",
            "30.118s: job.exception type=cancel severity=0 canceled by user",
            "TERM_REQUEUE_OWNER: job killed and requeued by owner.",
        ),
    ),
    Family(
        failure="preempted",
        source="kubernetes pkg/scheduler, pkg/kubelet/nodeshutdown, pod condition DisruptionTarget; LSF; tensorflow failure_handling.py",
        messages=(
            "Warning  Preempted  10s  default-scheduler  Preempted by pod 6f2c on node {node}",
            'ERROR: Job failed (system failure): pod "runs/trainer-0" is disrupted: reason "EvictionByEvictionAPI", message "Eviction API: evicting".',
            "Pod was terminated in response to imminent node shutdown.",
            "TERM_LOAD: job killed after load exceeds threshold.",
            "INFO:tensorflow:Member worker_0 has received termination notice.",
        ),
    ),
    Family(
        failure="storage",
        source="kubernetes pkg/kubelet/eviction, pkg/volume/util/operationexecutor; HTCondor file_transfer.cpp; pyxis and enroot where the disk is full; tensorstore; streaming",
        messages=(
            "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi.",
            "Pod ephemeral local storage usage exceeds the total limit of containers 10Gi.",
            'Warning  FailedMount  10s  kubelet  MountVolume.SetUp failed for volume "data" : mount failed: exit status 32',
            "Transfer output files failure at execution point slot1@{node} while sending files to access point ap1",
            "slurmstepd: error: pyxis: child 52574 failed with error code: 1\nslurmstepd: error: pyxis: failed to import docker image\nslurmstepd: error: pyxis: printing enroot log file:\nslurmstepd: error: pyxis:     [INFO] Creating squashfs filesystem...\nslurmstepd: error: pyxis:     Write failed because No space left on device\nslurmstepd: error: pyxis:     FATAL ERROR:Failed to write to output filesystem",
            "FATAL:   While making image from oci registry: error fetching image to cache: while building SIF from layers: while creating squashfs: create command failed: exit status 1: Write failed because No space left on device",
            "ValueError: UNAVAILABLE: Error reading gs://runs/8000/manifest.ocdbt: CURL error[28] Timeout was reached",
            "OSError: [Errno 38] Function not implemented: '/mnt/data/run.lock'",
            "OSError: [Errno 16] Device or resource busy: '.nfs0000000012'",
        ),
    ),
    Family(
        failure="gpu_hardware",
        source="kubernetes devicemanager; libtpu; SynapseAI; CANN 507xxx; Neuron NRT; Level Zero; ROCR-Runtime",
        messages=(
            "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 8, Available: 7, which is unexpected",
            "jax.errors.JaxRuntimeError: INTERNAL: Core halted unexpectedly: Accelerator device halted prematurely, perhaps due to an on-device check-failure. Node 0 halted unexpectedly at tag:pc TensorCoreSequencer:1:0x4ad",
            "RuntimeError: synStatus=26 [Generic failure] Device acquire failed.",
            "RuntimeError: ACL stream synchronize failed, error code:507018",
            "RuntimeError: NRT init failed: nrt_init status=1",
            "RuntimeError: Native API failed. Native API returns: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
            ":0:rocdevice.cpp:2875: 1000 us: [pid:3112 tid:0x7f] Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_HARDWARE_EXCEPTION: The queue has hit a hardware exception code: 0x1013",
        ),
    ),
    Family(
        failure="gpu_memory",
        source="tensorflow core/common_runtime/bfc_allocator.cc, core/framework/op_kernel.cc, gpu_util.cc; sglang model_runner.py",
        messages=(
            "2026-01-05 11:00:00.549000: W tensorflow/core/common_runtime/bfc_allocator.cc:275] Ran out of memory trying to allocate 144.00MiB.  See logs for memory state.",
            "2026-01-05 11:00:00.549000: W tensorflow/core/framework/op_kernel.cc:1733] RESOURCE_EXHAUSTED: failed to allocate memory",
            "tensorflow.python.framework.errors_impl.InternalError: Failed copying input tensor from CPU:0 to GPU:0 in order to run _EagerConst: Dst tensor is not initialized.",
        ),
    ),
    Family(
        failure="nvlink",
        source="CUDA driver API, cuMemExportToShareableHandle, CU_MEM_HANDLE_TYPE_FABRIC; nvbandwidth multinode_memcpy.cpp; systemctl",
        messages=(
            "[CUDA_ERROR_NOT_PERMITTED] operation not permitted in expression cuMemExportToShareableHandle(&handle, h, CU_MEM_HANDLE_TYPE_FABRIC, 0) on {node}, rank = 8 in share()",
            "[CUDA_ERROR_INVALID_VALUE] invalid argument in expression cuMemSetAccess(buffer, size, &desc, 1) on {node}, rank = 8 in MultinodeMemoryAllocationUnicast::MultinodeMemoryAllocationUnicast(size_t, int)()",
            "Job for nvidia-fabricmanager.service failed because the control process exited with error code.",
        ),
    ),
    Family(
        failure="fabric",
        source="ucx src/uct/ib/rc/verbs, base/ib_device.c, base/ib_iface.c; Open MPI pml/ucx; uccl rdma_io.cc; nccl src/transport/net_ib; Open MPI mtl/psm2; libfabric prov/cxi",
        messages=(
            "[1767607200.100000] [{node}:3112 :0]   rc_verbs_iface.c:93   UCX  ERROR send completion with error: transport retry counter exceeded vendor_err 0x81",
            "[{node}:3112:0:3112] rc_verbs_iface.c:63   FATAL: send completion with error: transport retry counter exceeded",
            "[1767607200.100000] [{node}:3112 :0]   dc_verbs.c:633  UCX  ERROR Send completion with error on qp 0x10e55: transport retry counter exceeded syndrome 0x81",
            "[1767607200.100000] [{node}:3112 :0]   ib_device.c:500  UCX  ERROR IB Async event on mlx5_0: port error on port 1",
            "[1767607200.100000] [{node}:3112 :0]   ib_iface.c:1055 UCX  ERROR failed to create UD QP TX wr:256 sge:6 inl:64 resp:0 RX wr:4096 sge:1 resp:0: Cannot allocate memory",
            "Error 9 occurred in attempting to make network progress (psm2_mq_ipeek).",
            "libfabric:3112:1767607200::cxi:core:cxip_evtq_event_handler():340<critical> {node}: Command failure: cq=3 target=1 fail_loc=8 cmd_type=1 cmd_size=2 opcode=4",
            "[{node}:3112] pml_ucx.c:996  Error: ucx send failed: Endpoint timeout",
            "[1767607200.100000] [{node}:3112 :0]   rc_iface.c:943  UCX  ERROR error modifying QP to RTR: Connection timed out",
            "{node}:3112:3390 [1] transport/net_ib/p2p.cc:854 NCCL WARN NET/IB: Got CQE with error (devIndex=0, req=0x7f1a2b3c, wr_id=3, qp_num=77)",
            "F20260105 11:00:00.976752 3112 rdma_io.cc:811] Check failed: wc->status == IBV_WC_SUCCESS RC send CQ state error: 12, 0",
        ),
    ),
    Family(
        failure="rendezvous",
        source="Slurm src/plugins/mpi/pmix/pmixp_coll_tree.c; xla coordination_service.cc",
        messages=(
            "slurmstepd: error:  mpi/pmix_v3: pmixp_coll_tree_reset_if_to: {node} [1]: pmixp_coll_tree.c:1317: 0x2b: collective timeout seq=0",
            "jaxlib.xla_extension.XlaRuntimeError: ABORTED: /job:jax_worker/replica:0/task:1 unexpectedly tried to connect with a different incarnation. It has likely restarted.",
            "jaxlib.xla_extension.XlaRuntimeError: INVALID_ARGUMENT: Unexpected task registered with task_name=/job:jax_worker/replica:0/task:9",
        ),
    ),
    Family(
        failure="config",
        source="ucx ucp_context.c, select.c; libtpu; kubernetes pkg/kubelet/images, pkg/scheduler; OpenPBS; FlexNet, CPLEX, MOSEK, STAR-CCM+; apptainer, shifter, sarus; MPICH; Open MPI opal/mca/shmem, help-mpi-runtime.txt",
        messages=(
            "[1767607200.100000] [{node}:3112 :0]   ucp_context.c:1100 UCX  ERROR network device 'mlx5_9:1' is not available, please use one or more of: 'mlx5_0:1'(IB)",
            "RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid 3112. Not attempting to load libtpu.so in this process.",
            "0/16 nodes are available: 16 Insufficient nvidia.com/gpu. preemption: 0/16 nodes are available: 16 No preemption victims found for incoming pod.",
            "Warning  Failed  10s  kubelet  Error: ImagePullBackOff",
            "=>> PBS: job killed: ncpus 35.2 exceeded limit 16 (sum)",
            "ANSYS LICENSE MANAGER ERROR:Request name solver_level2 does not exist in the licensing pool.",
            "MATLAB is unable to connect to the license server.",
            "Failed to connect to token server 'lic.example.org' (port 41954) - license file '/home/ada/solver.lic'.",
            "Request denied: license not valid for Gurobi version 12",
            "CPLEX Error  32201: ILM Error 16: license not found",
            "mosek.Error: rescode.err_missing_license_file(1008): License cannot be located.",
            "container creation failed: mount hook function failure: mount /proc/self/fd/3, kernel reported a bad superblock for squashfs image partition",
            "It appears as if there is not enough space for /tmp/ompi.{node}/shared_mem (the shared-memory backing\nfile). It is likely that your MPI job will now either abort or experience\nperformance degradation.",
            "No PMIx server was reachable, but a PMI1/2 was detected.\nIf srun is being used to launch application, 16 singletons will be started.",
            "MPID_Init(1369).......: PMI2 Job_GetId returned 14",
        ),
    ),
)
