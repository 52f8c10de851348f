"""Is each error of CUDA read as what it is, in each of its names? Names: driver_types.h and cuda.h of CUDA 13.0."""

from __future__ import annotations

from opsk.postmortem.logs.lines import read_fields
from opsk.postmortem.signatures import signatures
from opsk.postmortem.values import Origin, Role

ERRORS = {
    "gpu_memory": "MemoryAllocation OUT_OF_MEMORY",
    "gpu_hardware": "DevicesUnavailable DEVICE_UNAVAILABLE DeviceAlreadyInUse CONTEXT_ALREADY_IN_USE ECCUncorrectable"
    " ECC_UNCORRECTABLE HardwareStackError HARDWARE_STACK_ERROR MpsConnectionFailed"
    " MPS_CONNECTION_FAILED MpsRpcFailure MpsServerNotReady MpsMaxClientsReached MpsMaxConnectionsReached"
    " MpsClientTerminated MPS_CLIENT_TERMINATED",
    "nvlink": "SYSTEM_NOT_READY SystemNotReady NvlinkUncorrectable NVLINK_UNCORRECTABLE Contained CONTAINED",
    "config": "StubLibrary STUB_LIBRARY NoDevice NO_DEVICE InvalidDevice INVALID_DEVICE DeviceNotLicensed"
    " DEVICE_NOT_LICENSED InvalidKernelImage NoKernelImageForDevice NO_BINARY_FOR_GPU PeerAccessUnsupported InvalidPtx"
    " INVALID_PTX JitCompilerNotFound JIT_COMPILER_NOT_FOUND UnsupportedPtxVersion UNSUPPORTED_PTX_VERSION"
    " JitCompilationDisabled JIT_COMPILATION_DISABLED UnsupportedDevSideSync UNSUPPORTED_DEVSIDE_SYNC FileNotFound"
    " FILE_NOT_FOUND SharedObjectSymbolNotFound SHARED_OBJECT_SYMBOL_NOT_FOUND SharedObjectInitFailed"
    " SHARED_OBJECT_INIT_FAILED OperatingSystem OPERATING_SYSTEM TooManyPeers TOO_MANY_PEERS NotPermitted NOT_PERMITTED"
    " NotSupported NOT_SUPPORTED SystemDriverMismatch SYSTEM_DRIVER_MISMATCH CompatNotSupportedOnDevice"
    " COMPAT_NOT_SUPPORTED_ON_DEVICE CdpNotSupported CDP_NOT_SUPPORTED CdpVersionMismatch InsufficientDriver",
    "software": "InvalidValue DeviceUninitialized INVALID_CONTEXT MapBufferObjectFailed MAP_FAILED UnsupportedLimit"
    " UNSUPPORTED_LIMIT InvalidResourceHandle INVALID_HANDLE IllegalState ILLEGAL_STATE SymbolNotFound NOT_FOUND"
    " IllegalAddress ILLEGAL_ADDRESS LaunchOutOfResources LAUNCH_OUT_OF_RESOURCES LaunchTimeout LAUNCH_TIMEOUT"
    " ContextIsDestroyed CONTEXT_IS_DESTROYED Assert ASSERT IllegalInstruction ILLEGAL_INSTRUCTION MisalignedAddress"
    " MISALIGNED_ADDRESS InvalidAddressSpace INVALID_ADDRESS_SPACE InvalidPc INVALID_PC LaunchFailure LAUNCH_FAILED"
    " CooperativeLaunchTooLarge COOPERATIVE_LAUNCH_TOO_LARGE TensorMemoryLeak TENSOR_MEMORY_LEAK"
    " StreamCaptureUnsupported STREAM_CAPTURE_UNSUPPORTED StreamCaptureInvalidated StreamCaptureMerge"
    " StreamCaptureUnmatched StreamCaptureUnjoined StreamCaptureIsolation CapturedEvent CAPTURED_EVENT"
    " StreamCaptureWrongThread Timeout TIMEOUT GraphExecUpdateFailure GRAPH_EXEC_UPDATE_FAILURE ExternalDevice"
    " EXTERNAL_DEVICE InvalidClusterSize INVALID_CLUSTER_SIZE FunctionNotLoaded FUNCTION_NOT_LOADED InvalidResourceType"
    " INVALID_RESOURCE_TYPE InvalidResourceConfiguration INVALID_RESOURCE_CONFIGURATION Unknown UNKNOWN"
    " MissingConfiguration InvalidConfiguration",
}


def test_every_error_of_cuda_has_its_class() -> None:
    roots = [
        each for each in signatures() if each.role is Role.ROOT and each.origin is not Origin.KERNEL and not each.follow
    ]
    read = {}
    for failure, names in ERRORS.items():
        for name in names.split():
            line = f"failed: CUDA_ERROR_{name}: text" if name.isupper() else f"failed with cudaError{name} here"
            found = {
                each.failure.value
                for each in roots
                if each.failure is not None
                if any(part in line for part in each.fragments) and read_fields(each, line) is not None
            }
            if found != {failure}:
                read[name] = found
    assert read == {}
