/* What has a GPU been used for, as far as the driver books it: accounting, samples, supported clocks, odd flags? */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"

#define MAX_ACCOUNTS 256

NVML_API nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned int *mode) {
    return give_uint(__func__, device, "accounting.mode", mode);
}

NVML_API nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *size) {
    return give_uint(__func__, device, "accounting.buffer_size", size);
}

static unsigned long long booked(const struct call *call, unsigned int account, const char *what) {
    char name[48];
    snprintf(name, sizeof name, "accounting.%u.%s", account, what);
    return own_unsigned_or(call, name, 0);
}

NVML_API nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids) {
    BEGIN_DEVICE(call, device);
    if (count == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    const unsigned int room = pids == NULL ? 0 : *count;
    unsigned int found = 0;
    for (unsigned int account = 0; account < MAX_ACCOUNTS && booked(&call, account, "pid") != 0; account++) {
        if (found < room)
            pids[found] = (unsigned int)booked(&call, account, "pid");
        found++;
    }
    *count = found;
    return finish(&call, found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats) {
    BEGIN_DEVICE(call, device);
    if (stats == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned int account = 0; account < MAX_ACCOUNTS && booked(&call, account, "pid") != 0; account++) {
        if (booked(&call, account, "pid") != pid)
            continue;
        memset(stats, 0, sizeof *stats);
        stats->gpuUtilization = (unsigned int)booked(&call, account, "gpu_percent");
        stats->memoryUtilization = (unsigned int)booked(&call, account, "memory_percent");
        stats->maxMemoryUsage = booked(&call, account, "memory_max_bytes");
        stats->time = booked(&call, account, "time_ms");
        stats->startTime = booked(&call, account, "start_us");
        stats->isRunning = (unsigned int)booked(&call, account, "running");
        return finish(&call, NVML_SUCCESS);
    }
    return finish(&call, NVML_ERROR_NOT_FOUND);
}

/* The ring of samples has one: what the file says, as of now. */
NVML_API nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int kind, unsigned long long since_us,
                                           unsigned int *type, unsigned int *count, nvmlSample_t *samples) {
    static const char *const names[] = {
        "power.usage_mw",  "utilization.gpu_percent", "utilization.memory_percent", "utilization.encoder_percent",
        "utilization.decoder_percent", "clock.sm_mhz", "clock.memory_mhz",           "module.power.average_mw",
        "utilization.jpg_percent",     "utilization.ofa_percent",
    };
    struct call call;
    unsigned int value;
    nvmlReturn_t result = begin_device(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    if (kind >= sizeof names / sizeof *names || type == NULL || count == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    const unsigned long long now_us = (unsigned long long)(state_now_s(call.state) * 1e6);
    result = now_us > since_us ? own_uint(&call, names[kind], &value) : NVML_ERROR_NOT_FOUND;
    if (result == NVML_SUCCESS && samples != NULL && *count == 0)
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    if (result != NVML_SUCCESS)
        return finish(&call, result);
    if (samples != NULL) {
        memset(samples, 0, sizeof *samples);
        samples->timeStamp = now_us;
        samples->sampleValue.uiVal = value;
    }
    *type = NVML_VALUE_TYPE_UNSIGNED_INT;
    *count = 1;
    return finish(&call, NVML_SUCCESS);
}

static nvmlReturn_t clocks(const char *function, nvmlDevice_t device, const char *name, unsigned int *count,
                           unsigned int *mhz) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    const char *text = own_text(&call, name);
    if (count == NULL || text == NULL)
        return finish(&call, count == NULL ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED);
    const unsigned int room = mhz == NULL ? 0 : *count;
    unsigned int found = 0;
    while (*text != '\0') {
        char *end;
        unsigned long clock = strtoul(text, &end, 10);
        if (end == text)
            break;
        if (found < room)
            mhz[found] = (unsigned int)clock;
        found++;
        text = end + strspn(end, ", ");
    }
    *count = found;
    return finish(&call, found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count, unsigned int *mhz) {
    return clocks(__func__, device, "clock.supported.memory_mhz", count, mhz);
}

NVML_API nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory_mhz,
                                                           unsigned int *count, unsigned int *mhz) {
    (void)memory_mhz;
    return clocks(__func__, device, "clock.supported.graphics_mhz", count, mhz);
}

static nvmlReturn_t versioned(const char *function, nvmlDevice_t device, const char *name, nvmlVersionedValue_t *info) {
    if (info == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != NVML_VERSION_OF(*info, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return give_uint(function, device, name, &info->value);
}

NVML_API nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlVersionedValue_t *info) {
    return versioned(__func__, device, "addressing_mode", info);
}

NVML_API nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device, nvmlVersionedValue_t *info) {
    return versioned(__func__, device, "unrepairable_memory", info);
}

NVML_API nvmlReturn_t nvmlDeviceGetCapabilities(nvmlDevice_t device, nvmlVersionedValue_t *info) {
    return versioned(__func__, device, "capabilities", info);
}

NVML_API nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, unsigned int *enabled) {
    return give_uint(__func__, device, "c2c.enabled", enabled);
}

NVML_API nvmlReturn_t nvmlDeviceGetBBXTimeData_v1(nvmlDevice_t device, unsigned int *run_s) {
    return give_uint(__func__, device, "bbx.run_s", run_s);
}

NVML_API nvmlReturn_t nvmlDeviceGetPdi(nvmlDevice_t device, nvmlPdi_v1_t *info) {
    if (info == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != NVML_VERSION_OF(*info, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return give_unsigned(__func__, device, "pdi", &info->value);
}

NVML_API nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_v1_t *status) {
    BEGIN_DEVICE(call, device);
    if (status == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (status->version != NVML_VERSION_OF(*status, 1))
        return finish(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    result = own_uint(&call, "repair.channel_pending", &status->bChannelRepairPending);
    status->bTpcRepairPending = own_uint_or(&call, "repair.tpc_pending", 0);
    return finish(&call, result);
}
