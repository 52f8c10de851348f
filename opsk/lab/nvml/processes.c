/* Which processes use a GPU, with how much memory and time? */
#include <stdio.h>
#include <string.h>

#include "call.h"

#define MAX_PROCESSES 256

struct process {
    nvmlProcessDetail_v1_t detail;
    unsigned int sm, memory, encoder, decoder, jpg, ofa;
};

static unsigned int number(const struct call *gpu, unsigned int process, const char *what, unsigned int other) {
    char name[MAX_KEY];
    snprintf(name, sizeof name, "process.%u.%s", process, what);
    return own_uint_or(gpu, name, other);
}

/* One process of the GPU: "process.<n>.pid", ".kind" (compute, graphics or mps; compute where it is not told), ".memory_used_bytes" ... */
static bool process_at(const struct call *gpu, unsigned int at, const char *kind, struct process *process) {
    char name[MAX_KEY];
    snprintf(name, sizeof name, "process.%u.kind", at);
    const char *text = own_text(gpu, name);
    if (kind != NULL && strcmp(text == NULL ? "compute" : text, kind) != 0)
        return false;
    memset(process, 0, sizeof *process);
    snprintf(name, sizeof name, "process.%u.memory_used_bytes", at);
    process->detail.pid = number(gpu, at, "pid", 0);
    process->detail.usedGpuMemory = own_unsigned_or(gpu, name, NVML_NOT_AVAILABLE);
    process->detail.gpuInstanceId = number(gpu, at, "gpu_instance", NVML_NONE_ID);
    process->detail.computeInstanceId = number(gpu, at, "compute_instance", NVML_NONE_ID);
    process->sm = number(gpu, at, "sm_percent", 0);
    process->memory = number(gpu, at, "memory_percent", 0);
    process->encoder = number(gpu, at, "encoder_percent", 0);
    process->decoder = number(gpu, at, "decoder_percent", 0);
    process->jpg = number(gpu, at, "jpg_percent", 0);
    process->ofa = number(gpu, at, "ofa_percent", 0);
    return true;
}

/* A MIG device has those of the GPU's processes that run in its instances. */
static unsigned int gather(const struct call *call, const char *kind, struct process found[MAX_PROCESSES]) {
    struct call gpu = *call;
    unsigned int count = 0, instance = 0, compute = 0;
    gpu.mig = WHOLE_GPU;
    if (call->mig != WHOLE_GPU) {
        instance = own_uint_or(call, "gpu_instance", NVML_NONE_ID);
        compute = own_uint_or(call, "compute_instance", NVML_NONE_ID);
    }
    for (unsigned int at = 0; at < MAX_PROCESSES; at++) {
        if (number(&gpu, at, "pid", 0) == 0)
            break;
        const nvmlProcessDetail_v1_t *detail = &found[count].detail;
        if (process_at(&gpu, at, kind, &found[count]) &&
            (call->mig == WHOLE_GPU || (detail->gpuInstanceId == instance && detail->computeInstanceId == compute)))
            count++;
    }
    return count;
}

/* The layouts differ in length alone: each is the beginning of the next. */
static nvmlReturn_t running(const char *function, nvmlDevice_t device, const char *kind, size_t size,
                            unsigned int *count, void *infos) {
    struct call call;
    struct process found[MAX_PROCESSES];
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL || (*count > 0 && infos == NULL))
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    const char *refused = own_text(&call, "processes");
    nvmlReturn_t error;
    if (refused != NULL && *refused == '!' && error_named(refused + 1, &error))
        return finish(&call, error);
    const unsigned int room = *count;
    *count = gather(&call, kind, found);
    if (*count > room)
        return finish(&call, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int at = 0; at < *count; at++)
        memcpy((char *)infos + at * size, &found[at].detail, size);
    return finish(&call, NVML_SUCCESS);
}

#define RUNNING(function, kind, type)                                                                                  \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, void *infos) {                            \
        return running(__func__, device, kind, sizeof(type), count, infos);                                            \
    }

RUNNING(nvmlDeviceGetComputeRunningProcesses, "compute", nvmlProcessInfo_v1_t)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v2, "compute", nvmlProcessInfo_v2_t)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v3, "compute", nvmlProcessInfo_v2_t)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, "graphics", nvmlProcessInfo_v1_t)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics", nvmlProcessInfo_v2_t)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics", nvmlProcessInfo_v2_t)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses, "mps", nvmlProcessInfo_v1_t)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps", nvmlProcessInfo_v2_t)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps", nvmlProcessInfo_v2_t)

NVML_API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *list) {
    static const char *const modes[] = {"compute", "graphics", "mps", NULL};
    struct call call;
    struct process found[MAX_PROCESSES];
    nvmlReturn_t result = begin_device(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    if (list == NULL || list->mode > 3)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (list->version != NVML_VERSION_OF(*list, 1))
        return finish(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    const unsigned int room = list->procArray == NULL ? 0 : list->numProcArrayEntries;
    list->numProcArrayEntries = gather(&call, modes[list->mode], found);
    if (list->numProcArrayEntries > room)
        return finish(&call, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int at = 0; at < list->numProcArrayEntries; at++)
        list->procArray[at] = found[at].detail;
    return finish(&call, NVML_SUCCESS);
}

static unsigned long long now_us(const struct call *call) {
    return (unsigned long long)(state_now_s(call->state) * 1e6);
}

/* Samples since a time: one of each process, as of now. Like the driver, NOT_FOUND where there are none. */
NVML_API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                      unsigned int *count, unsigned long long since_us) {
    struct call call;
    struct process found[MAX_PROCESSES];
    nvmlReturn_t result = begin_device(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (call.mig != WHOLE_GPU)
        return finish(&call, NVML_ERROR_NOT_SUPPORTED);
    const unsigned int room = samples == NULL ? 0 : *count;
    *count = now_us(&call) > since_us ? gather(&call, NULL, found) : 0;
    if (*count == 0)
        return finish(&call, NVML_ERROR_NOT_FOUND);
    if (*count > room)
        return finish(&call, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int at = 0; at < *count; at++)
        samples[at] = (nvmlProcessUtilizationSample_t){found[at].detail.pid, now_us(&call),     found[at].sm,
                                                       found[at].memory,     found[at].encoder, found[at].decoder};
    return finish(&call, NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                            nvmlProcessesUtilizationInfo_v1_t *info) {
    struct call call;
    struct process found[MAX_PROCESSES];
    nvmlReturn_t result = begin_device(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    if (info == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (info->version != NVML_VERSION_OF(*info, 1))
        return finish(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    if (call.mig != WHOLE_GPU)
        return finish(&call, NVML_ERROR_NOT_SUPPORTED);
    const unsigned int room = info->procUtilArray == NULL ? 0 : info->processSamplesCount;
    info->processSamplesCount = now_us(&call) > info->lastSeenTimeStamp ? gather(&call, NULL, found) : 0;
    if (info->processSamplesCount == 0)
        return finish(&call, NVML_ERROR_NOT_FOUND);
    if (info->processSamplesCount > room)
        return finish(&call, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int at = 0; at < info->processSamplesCount; at++)
        info->procUtilArray[at] = (nvmlProcessUtilizationInfo_v1_t){
            now_us(&call),     found[at].detail.pid, found[at].sm,  found[at].memory,
            found[at].encoder, found[at].decoder,    found[at].jpg, found[at].ofa};
    return finish(&call, NVML_SUCCESS);
}
