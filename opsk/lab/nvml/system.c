/* Which driver is it, which library, and has the program said Init? */
#include <stdio.h>
#include <string.h>

#include "call.h"

static nvmlReturn_t init(const char *function) {
    struct call call;
    nvmlReturn_t result = begin_init(&call, function);
    return result == NVML_SUCCESS ? finish(&call, count_init(&call)) : result;
}

NVML_API nvmlReturn_t nvmlInit(void) {
    return init(__func__);
}

NVML_API nvmlReturn_t nvmlInit_v2(void) {
    return init(__func__);
}

NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return init(__func__);
}

NVML_API nvmlReturn_t nvmlShutdown(void) {
    struct call call = {.state = state_acquire(), .function = __func__, .gpu = -1, .mig = WHOLE_GPU};
    return finish(&call, call.state == NULL ? NVML_ERROR_UNINITIALIZED : count_shutdown(&call));
}

NVML_API const char *nvmlErrorString(nvmlReturn_t error) {
    return error_text(error);
}

static nvmlReturn_t give_system_text(const char *function, const char *key, char *text, unsigned int room) {
    struct call call;
    nvmlReturn_t result = begin(&call, function);
    return result == NVML_SUCCESS ? finish(&call, copy_text(state_text(call.state, key), text, room)) : result;
}

NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    return give_system_text(__func__, "driver.version", version, length);
}

NVML_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    return give_system_text(__func__, "nvml.version", version, length);
}

NVML_API nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_v1_t *info, unsigned int length) {
    if (info == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != NVML_VERSION_OF(*info, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return give_system_text(__func__, "driver.branch", info->branch, length < sizeof info->branch ? length : 80);
}

static nvmlReturn_t cuda_version(const char *function, int *version) {
    struct call call;
    unsigned long long number;
    nvmlReturn_t result = begin(&call, function);
    if (result != NVML_SUCCESS)
        return result;
    result = version == NULL ? NVML_ERROR_INVALID_ARGUMENT : state_unsigned(call.state, "driver.cuda", &number);
    if (result == NVML_SUCCESS)
        *version = (int)number;
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return cuda_version(__func__, version);
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return cuda_version(__func__, version);
}

NVML_API nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
    struct call call;
    char key[MAX_KEY];
    nvmlReturn_t result = begin(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(key, sizeof key, "process.%u.name", pid);
    const char *text = state_text(call.state, key);
    return finish(&call, text == NULL ? NVML_ERROR_NOT_FOUND : copy_text(text, name, length));
}

static nvmlReturn_t none(const char *function, unsigned int *count) {
    struct call call;
    nvmlReturn_t result = begin(&call, function);
    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    return finish(&call, NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlUnitGetCount(unsigned int *count) {
    return none(__func__, count);
}

NVML_API nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count) {
    return none(__func__, count);
}

NVML_API nvmlReturn_t nvmlSystemGetHicVersion(unsigned int *count, void *entries) {
    (void)entries;
    return none(__func__, count);
}
