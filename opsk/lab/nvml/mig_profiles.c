/* Into which GPU instances can a GPU be cut? "gpu.0.mig.profile.<profile>.<what>". */
#include <stdio.h>
#include <string.h>

#include "call.h"

static nvmlReturn_t what_of(const struct call *call, unsigned int profile, const char *what, unsigned int *value) {
    char name[64];
    snprintf(name, sizeof name, "mig.profile.%u.%s", profile, what);
    return own_uint(call, name, value);
}

static unsigned int what_or_none(const struct call *call, unsigned int profile, const char *what) {
    unsigned int value;
    return what_of(call, profile, what, &value) == NVML_SUCCESS ? value : 0;
}

static nvmlReturn_t profile_info(const char *function, nvmlDevice_t device, unsigned int profile,
                                 nvmlGpuInstanceProfileInfo_t *info, char name[96]) {
    struct call call;
    char key[64];
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    result = what_of(&call, profile, "id", &info->id);
    info->isP2pSupported = what_or_none(&call, profile, "p2p");
    info->sliceCount = what_or_none(&call, profile, "slices");
    info->instanceCount = what_or_none(&call, profile, "instances");
    info->multiprocessorCount = what_or_none(&call, profile, "multiprocessors");
    info->copyEngineCount = what_or_none(&call, profile, "copy_engines");
    info->decoderCount = what_or_none(&call, profile, "decoders");
    info->encoderCount = what_or_none(&call, profile, "encoders");
    info->jpegCount = what_or_none(&call, profile, "jpegs");
    info->ofaCount = what_or_none(&call, profile, "ofas");
    info->memorySizeMB = what_or_none(&call, profile, "memory_mib");
    snprintf(key, sizeof key, "mig.profile.%u.name", profile);
    const char *text = own_text(&call, key);
    if (name != NULL)
        snprintf(name, 96, "%s", text == NULL ? "" : text);
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                          nvmlGpuInstanceProfileInfo_t *info) {
    return info == NULL ? NVML_ERROR_INVALID_ARGUMENT : profile_info(__func__, device, profile, info, NULL);
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile,
                                                           nvmlGpuInstanceProfileInfo_v2_t *info) {
    nvmlGpuInstanceProfileInfo_t plain;
    if (info == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != NVML_VERSION_OF(*info, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = profile_info(__func__, device, profile, &plain, info->name);
    if (result != NVML_SUCCESS)
        return result;
    /* Version 2 is the first one with a word before and a name behind it. */
    info->id = plain.id;
    info->isP2pSupported = plain.isP2pSupported;
    info->sliceCount = plain.sliceCount;
    info->instanceCount = plain.instanceCount;
    info->multiprocessorCount = plain.multiprocessorCount;
    info->copyEngineCount = plain.copyEngineCount;
    info->decoderCount = plain.decoderCount;
    info->encoderCount = plain.encoderCount;
    info->jpegCount = plain.jpegCount;
    info->ofaCount = plain.ofaCount;
    info->memorySizeMB = plain.memorySizeMB;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profile,
                                                                unsigned int *count) {
    BEGIN_DEVICE(call, device);
    return finish(&call, count == NULL ? NVML_ERROR_INVALID_ARGUMENT : what_of(&call, profile, "remaining", count));
}
