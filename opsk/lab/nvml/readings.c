/* How busy, how full, how fast, how hot is a GPU, and what does it draw? */
#include <string.h>

#include "call.h"

#define UINT(function, name)                                                                                           \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, unsigned int *value) {                                         \
        return give_uint(__func__, device, name, value);                                                               \
    }

UINT(nvmlDeviceGetPowerUsage, "power.usage_mw")
UINT(nvmlDeviceGetPowerManagementLimit, "power.limit_mw")
UINT(nvmlDeviceGetPowerManagementDefaultLimit, "power.default_limit_mw")
UINT(nvmlDeviceGetEnforcedPowerLimit, "power.enforced_limit_mw")
UINT(nvmlDeviceGetPowerManagementMode, "power.mode")
UINT(nvmlDeviceGetPowerSource, "power.source")
UINT(nvmlDeviceGetPerformanceState, "pstate")
UINT(nvmlDeviceGetPowerState, "pstate")
UINT(nvmlDeviceGetFanSpeed, "fan.0.percent")
UINT(nvmlDeviceGetNumFans, "fan.count")
UINT(nvmlDeviceGetAdaptiveClockInfoStatus, "clock.adaptive")

NVML_API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least,
                                                                   unsigned int *most) {
    nvmlReturn_t result = give_uint(__func__, device, "power.min_limit_mw", least);
    return result == NVML_SUCCESS ? give_uint(__func__, device, "power.max_limit_mw", most) : result;
}

NVML_API nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy_mj) {
    return give_unsigned(__func__, device, "energy_mj", energy_mj);
}

NVML_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    BEGIN_DEVICE(call, device);
    if (rates == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    result = own_uint(&call, "utilization.gpu_percent", &rates->gpu);
    if (result == NVML_SUCCESS)
        result = own_uint(&call, "utilization.memory_percent", &rates->memory);
    return finish(&call, result);
}

static nvmlReturn_t engine(const char *function, nvmlDevice_t device, const char *name, unsigned int *percent,
                           unsigned int *sampling_us) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    if (percent == NULL || sampling_us == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    *sampling_us = own_uint_or(&call, "utilization.sampling_us", 167000);
    return finish(&call, own_uint(&call, name, percent));
}

#define ENGINE(function, name)                                                                                         \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, unsigned int *percent, unsigned int *sampling_us) {            \
        return engine(__func__, device, name, percent, sampling_us);                                                   \
    }

ENGINE(nvmlDeviceGetEncoderUtilization, "utilization.encoder_percent")
ENGINE(nvmlDeviceGetDecoderUtilization, "utilization.decoder_percent")
ENGINE(nvmlDeviceGetJpgUtilization, "utilization.jpg_percent")
ENGINE(nvmlDeviceGetOfaUtilization, "utilization.ofa_percent")

/* Free memory is what the file says, else what is neither used nor reserved. */
static nvmlReturn_t memory(const struct call *call, nvmlMemory_v2_t *info) {
    nvmlReturn_t result = own_unsigned(call, "memory.total_bytes", &info->total);
    if (result == NVML_SUCCESS)
        result = own_unsigned(call, "memory.used_bytes", &info->used);
    if (result != NVML_SUCCESS)
        return result;
    info->reserved = own_unsigned_or(call, "memory.reserved_bytes", 0);
    const unsigned long long taken = info->used + info->reserved;
    info->free = own_unsigned_or(call, "memory.free_bytes", info->total > taken ? info->total - taken : 0);
    return NVML_SUCCESS;
}

/* The first version counts what is reserved as used. */
NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info) {
    struct call call;
    nvmlMemory_v2_t wide;
    nvmlReturn_t result = begin_device(&call, __func__, device);
    if (result != NVML_SUCCESS)
        return result;
    result = info == NULL ? NVML_ERROR_INVALID_ARGUMENT : memory(&call, &wide);
    if (result == NVML_SUCCESS)
        *info = (nvmlMemory_t){wide.total, wide.free, wide.used + wide.reserved};
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info) {
    BEGIN_DEVICE(call, device);
    if (info == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (info->version != NVML_VERSION_OF(*info, 2))
        return finish(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    return finish(&call, memory(&call, info));
}

NVML_API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *info) {
    BEGIN_DEVICE(call, device);
    if (info == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    result = own_unsigned(&call, "bar1.total_bytes", &info->bar1Total);
    if (result == NVML_SUCCESS)
        result = own_unsigned(&call, "bar1.used_bytes", &info->bar1Used);
    if (result == NVML_SUCCESS)
        info->bar1Free = info->bar1Total > info->bar1Used ? info->bar1Total - info->bar1Used : 0;
    return finish(&call, result);
}

static nvmlReturn_t clock_of(const char *function, nvmlDevice_t device, const char *kind, unsigned int type,
                             unsigned int *mhz) {
    static const char *const types[] = {"graphics_mhz", "sm_mhz", "memory_mhz", "video_mhz"};
    char name[MAX_KEY];
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    if (type > 3 || kind == NULL || mhz == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    strcpy(name, "clock.");
    strcat(name, kind);
    strcat(name, types[type]);
    return finish(&call, own_uint(&call, name, mhz));
}

NVML_API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz) {
    return clock_of(__func__, device, "", type, mhz);
}

NVML_API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz) {
    return clock_of(__func__, device, "max.", type, mhz);
}

NVML_API nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, unsigned int type, unsigned int *mhz) {
    return clock_of(__func__, device, "app.", type, mhz);
}

NVML_API nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, unsigned int type, unsigned int *mhz) {
    return clock_of(__func__, device, "app_default.", type, mhz);
}

NVML_API nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, unsigned int type, unsigned int *mhz) {
    return clock_of(__func__, device, "boost_max.", type, mhz);
}

NVML_API nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned int type, unsigned int id, unsigned int *mhz) {
    static const char *const kinds[] = {"", "app.", "app_default.", "boost_max."};
    return clock_of(__func__, device, id < 4 ? kinds[id] : NULL, type, mhz);
}

#define REASONS(function, name)                                                                                        \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, unsigned long long *reasons) {                                 \
        return give_unsigned(__func__, device, name, reasons);                                                         \
    }

REASONS(nvmlDeviceGetCurrentClocksEventReasons, "clocks_event.reasons")
REASONS(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks_event.reasons")
REASONS(nvmlDeviceGetSupportedClocksEventReasons, "clocks_event.supported")
REASONS(nvmlDeviceGetSupportedClocksThrottleReasons, "clocks_event.supported")

NVML_API nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned int policy, nvmlViolationTime_t *time) {
    static const char *const policies[] = {
        "violation.power_ns",       "violation.thermal_ns",     "violation.sync_boost_ns",
        "violation.board_limit_ns", "violation.low_utilization_ns", "violation.reliability_ns",
        NULL,                       NULL,                       NULL,
        NULL,                       "violation.app_clocks_ns",  "violation.base_clocks_ns",
    };
    BEGIN_DEVICE(call, device);
    if (time == NULL || policy >= sizeof policies / sizeof *policies || policies[policy] == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    time->referenceTime = (unsigned long long)(state_now_s(call.state) * 1e6);
    return finish(&call, own_unsigned(&call, policies[policy], &time->violationTime));
}

static nvmlReturn_t signed_value(const char *function, nvmlDevice_t device, const char *name, int *value) {
    struct call call;
    long long wide;
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    result = value == NULL ? NVML_ERROR_INVALID_ARGUMENT : own_signed(&call, name, &wide);
    if (result == NVML_SUCCESS)
        *value = (int)wide;
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *celsius) {
    if (sensor != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    return signed_value(__func__, device, "temperature_c", (int *)celsius);
}

NVML_API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *reading) {
    if (reading == NULL || reading->sensorType > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (reading->version != NVML_VERSION_OF(*reading, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return signed_value(__func__, device, reading->sensorType == 0 ? "temperature_c" : "temperature.max_c",
                        &reading->temperature);
}

NVML_API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int threshold,
                                                        unsigned int *celsius) {
    static const char *const names[] = {
        "temperature.threshold.shutdown_c",         "temperature.threshold.slowdown_c",
        "temperature.threshold.memory_max_c",       "temperature.threshold.gpu_max_c",
        "temperature.threshold.acoustic_min_c",     "temperature.threshold.acoustic_current_c",
        "temperature.threshold.acoustic_max_c",     "temperature.threshold.gps_current_c",
    };
    if (threshold >= sizeof names / sizeof *names)
        return NVML_ERROR_INVALID_ARGUMENT;
    return signed_value(__func__, device, names[threshold], (int *)celsius);
}

NVML_API nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_v1_t *margin) {
    if (margin == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (margin->version != NVML_VERSION_OF(*margin, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return signed_value(__func__, device, "temperature.margin_c", &margin->marginTemperature);
}

static nvmlReturn_t fan(const char *function, nvmlDevice_t device, unsigned int number, const char *what,
                        unsigned int *value) {
    struct call call;
    char key[MAX_KEY];
    unsigned long long wide;
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    key_of(&call, key, "fan.%u.%s", number, what);
    result = value == NULL ? NVML_ERROR_INVALID_ARGUMENT : state_unsigned(call.state, key, &wide);
    if (result == NVML_SUCCESS)
        *value = (unsigned int)wide;
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int number, unsigned int *percent) {
    return fan(__func__, device, number, "percent", percent);
}

NVML_API nvmlReturn_t nvmlDeviceGetTargetFanSpeed(nvmlDevice_t device, unsigned int number, unsigned int *percent) {
    return fan(__func__, device, number, "target_percent", percent);
}

NVML_API nvmlReturn_t nvmlDeviceGetFanSpeedRPM(nvmlDevice_t device, nvmlFanSpeedInfo_v1_t *info) {
    if (info == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != NVML_VERSION_OF(*info, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return fan(__func__, device, info->fan, "rpm", &info->speed);
}
