/* Is a GPU cut into MIG devices, and into which? */
#include <stdio.h>
#include <string.h>

#include "call.h"

/* GPU and compute instances, like devices, are addresses in tables; a GPU instance is at its first MIG device. */
static struct device_handle gpu_instances[MAX_GPUS][MAX_MIG], compute_instances[MAX_GPUS][MAX_MIG];

static bool slot_of(const struct device_handle table[MAX_GPUS][MAX_MIG], nvmlGpuInstance_t handle, struct call *call) {
    const uintptr_t first = (uintptr_t)&table[0][0], address = (uintptr_t)handle;
    if (address < first || address >= first + sizeof gpu_instances)
        return false;
    call->gpu = (int)((address - first) / sizeof(struct device_handle) / MAX_MIG);
    call->mig = (int)((address - first) / sizeof(struct device_handle) % MAX_MIG);
    return (unsigned int)call->gpu < gpu_count(call->state) && mig_present(call->state, call->gpu, call->mig);
}

/* Begin a call about a GPU or compute instance: the call's device is then a MIG device of it. */
static nvmlReturn_t begin_instance(struct call *call, const char *function,
                                   const struct device_handle table[MAX_GPUS][MAX_MIG], nvmlGpuInstance_t handle) {
    nvmlReturn_t result = begin(call, function);
    if (result != NVML_SUCCESS)
        return result;
    if (!slot_of(table, handle, call))
        return finish(call, NVML_ERROR_INVALID_ARGUMENT);
    return gpu_lost(call->state, (unsigned int)call->gpu) ? finish(call, NVML_ERROR_GPU_IS_LOST) : NVML_SUCCESS;
}

static nvmlReturn_t begin_whole(struct call *call, const char *function, nvmlDevice_t device) {
    nvmlReturn_t result = begin_device(call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    return call->mig == WHOLE_GPU ? NVML_SUCCESS : finish(call, NVML_ERROR_INVALID_ARGUMENT);
}

static bool mig_on(const struct call *call) {
    struct call gpu = *call;
    gpu.mig = WHOLE_GPU;
    return own_uint_or(&gpu, "mig.mode", 0) != 0;
}

NVML_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending) {
    struct call call;
    nvmlReturn_t result = begin_whole(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    if (now == NULL || pending == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    result = own_uint(&call, "mig.mode", now);
    if (result == NVML_SUCCESS)
        *pending = own_uint_or(&call, "mig.pending", *now);
    return finish(&call, result);
}

static unsigned int most(const struct call *call) {
    unsigned int most = own_uint_or(call, "mig.max", 7);
    return !mig_on(call) ? 0 : most > MAX_MIG ? MAX_MIG : most;
}

NVML_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    struct call call;
    nvmlReturn_t result = begin_whole(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    *count = most(&call);
    return finish(&call, NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                          nvmlDevice_t *mig_device) {
    struct call call;
    nvmlReturn_t result = begin_whole(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    if (!mig_on(&call))
        return finish(&call, NVML_ERROR_NOT_SUPPORTED);
    if (mig_device == NULL || index >= most(&call))
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (!mig_present(call.state, call.gpu, (int)index))
        return finish(&call, NVML_ERROR_NOT_FOUND);
    *mig_device = handle_of(call.gpu, (int)index);
    return finish(&call, NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig) {
    BEGIN_DEVICE(call, device);
    if (is_mig == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    *is_mig = call.mig != WHOLE_GPU;
    return finish(&call, NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig_device, nvmlDevice_t *device) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, __func__, mig_device);
    if (result != NVML_SUCCESS)
        return result;
    if (device == NULL || call.mig == WHOLE_GPU)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    *device = handle_of(call.gpu, WHOLE_GPU);
    return finish(&call, NVML_SUCCESS);
}

static nvmlReturn_t instance_number(const char *function, nvmlDevice_t device, const char *name, unsigned int *number) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    if (call.mig == WHOLE_GPU)
        return finish(&call, mig_on(&call) ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED);
    return finish(&call, number == NULL ? NVML_ERROR_INVALID_ARGUMENT : own_uint(&call, name, number));
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *number) {
    return instance_number(__func__, device, "gpu_instance", number);
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *number) {
    return instance_number(__func__, device, "compute_instance", number);
}

static nvmlReturn_t attributes(const char *function, nvmlDevice_t device, nvmlDeviceAttributes_t *info) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    if (info == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    result = own_uint(&call, "attributes.multiprocessors", &info->multiprocessorCount);
    info->sharedCopyEngineCount = own_uint_or(&call, "attributes.copy_engines", 1);
    info->sharedDecoderCount = own_uint_or(&call, "attributes.decoders", 0);
    info->sharedEncoderCount = own_uint_or(&call, "attributes.encoders", 0);
    info->sharedJpegCount = own_uint_or(&call, "attributes.jpegs", 0);
    info->sharedOfaCount = own_uint_or(&call, "attributes.ofas", 0);
    info->gpuInstanceSliceCount = own_uint_or(&call, "attributes.gpu_slices", 1);
    info->computeInstanceSliceCount = own_uint_or(&call, "attributes.compute_slices", 1);
    info->memorySizeMB = own_unsigned_or(&call, "attributes.memory_mib", 0);
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *info) {
    return attributes(__func__, device, info);
}

NVML_API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *info) {
    return attributes(__func__, device, info);
}

static unsigned int mig_number(const struct call *call, int mig, const char *name, unsigned int other) {
    struct call device = *call;
    device.mig = mig;
    return own_uint_or(&device, name, other);
}

/* The first MIG device of each GPU instance: the next one from `from` on that no earlier one shares, else -1. */
static int next_instance(const struct call *call, int from) {
    for (int mig = from; mig < MAX_MIG; mig++) {
        bool shared = false;
        if (!mig_present(call->state, call->gpu, mig))
            continue;
        for (int earlier = 0; earlier < mig; earlier++)
            shared = shared || (mig_present(call->state, call->gpu, earlier) &&
                                mig_number(call, earlier, "gpu_instance", 0) == mig_number(call, mig, "gpu_instance", 0));
        if (!shared)
            return mig;
    }
    return -1;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profile, nvmlGpuInstance_t *instances,
                                                unsigned int *count) {
    struct call call;
    nvmlReturn_t result = begin_whole(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    if (!mig_on(&call))
        return finish(&call, NVML_ERROR_NOT_SUPPORTED);
    if (instances == NULL || count == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0; /* the caller has room for as many as the profile allows */
    for (int mig = next_instance(&call, 0); mig >= 0; mig = next_instance(&call, mig + 1))
        if (mig_number(&call, mig, "profile", 0) == profile)
            instances[(*count)++] = &gpu_instances[call.gpu][mig];
    return finish(&call, NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance) {
    struct call call;
    nvmlReturn_t result = begin_whole(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    if (!mig_on(&call) || instance == NULL)
        return finish(&call, instance == NULL ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED);
    for (int mig = next_instance(&call, 0); mig >= 0; mig = next_instance(&call, mig + 1)) {
        if (mig_number(&call, mig, "gpu_instance", 0) == id) {
            *instance = &gpu_instances[call.gpu][mig];
            return finish(&call, NVML_SUCCESS);
        }
    }
    return finish(&call, NVML_ERROR_NOT_FOUND);
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    struct call call;
    nvmlReturn_t result = begin_instance(&call, __func__, gpu_instances, instance);
    if (result != NVML_SUCCESS)
        return result;
    if (info == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    info->device = handle_of(call.gpu, WHOLE_GPU);
    info->profileId = own_uint_or(&call, "profile", 0);
    info->placement.start = own_uint_or(&call, "placement.start", 0);
    info->placement.size = own_uint_or(&call, "placement.size", 1);
    return finish(&call, own_uint(&call, "gpu_instance", &info->id));
}

static nvmlReturn_t find_compute(const char *function, nvmlGpuInstance_t instance, unsigned int wanted, bool by_profile,
                                 nvmlComputeInstance_t *found, unsigned int *count) {
    struct call call;
    nvmlReturn_t result = begin_instance(&call, function, gpu_instances, instance);
    if (result != NVML_SUCCESS)
        return result;
    if (found == NULL || count == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    const unsigned int own = own_uint_or(&call, "gpu_instance", 0);
    *count = 0;
    for (int mig = 0; mig < MAX_MIG; mig++)
        if (mig_present(call.state, call.gpu, mig) && mig_number(&call, mig, "gpu_instance", 0) == own &&
            mig_number(&call, mig, by_profile ? "compute_profile" : "compute_instance", 0) == wanted)
            found[(*count)++] = &compute_instances[call.gpu][mig];
    return finish(&call, NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int profile,
                                                         nvmlComputeInstance_t *found, unsigned int *count) {
    return find_compute(__func__, instance, profile, true, found, count);
}

NVML_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
                                                            nvmlComputeInstance_t *found) {
    nvmlComputeInstance_t all[MAX_MIG];
    unsigned int count = 0;
    nvmlReturn_t result = find_compute(__func__, instance, id, false, all, &count);
    if (result != NVML_SUCCESS || count == 0)
        return result != NVML_SUCCESS ? result : NVML_ERROR_NOT_FOUND;
    if (found == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *found = all[0];
    return NVML_SUCCESS;
}

static nvmlReturn_t compute_info(const char *function, nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info) {
    struct call call;
    nvmlReturn_t result = begin_instance(&call, function, compute_instances, instance);
    if (result != NVML_SUCCESS)
        return result;
    if (info == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    const unsigned int own = own_uint_or(&call, "gpu_instance", 0);
    info->device = handle_of(call.gpu, WHOLE_GPU);
    info->gpuInstance = NULL;
    for (int mig = next_instance(&call, 0); mig >= 0; mig = next_instance(&call, mig + 1))
        if (mig_number(&call, mig, "gpu_instance", 0) == own)
            info->gpuInstance = &gpu_instances[call.gpu][mig];
    info->profileId = own_uint_or(&call, "compute_profile", 0);
    info->placement = (nvmlPlacement_t){0, own_uint_or(&call, "attributes.compute_slices", 1)};
    return finish(&call, own_uint(&call, "compute_instance", &info->id));
}

NVML_API nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info) {
    return compute_info(__func__, instance, info);
}

NVML_API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info) {
    return compute_info(__func__, instance, info);
}
