/* Is the library initialised, the GPU there, and is the call to hang or fail? */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "call.h"

#define SLICE_S 0.02
#define MIG_ROOM (MAX_MIG + 1)

static struct device_handle handles[MAX_GPUS][MIG_ROOM]; /* [gpu][0] is the GPU, [gpu][1 + mig] a MIG device of it */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;   /* of the two below */
static unsigned int init_count;
static unsigned long long init_generation;
static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER; /* held by calls where "hang.holds_driver" says so */

nvmlDevice_t handle_of(int gpu, int mig) {
    return &handles[gpu][1 + mig];
}

bool handle_known(nvmlDevice_t device, int *gpu, int *mig) {
    const uintptr_t first = (uintptr_t)&handles[0][0], address = (uintptr_t)device;
    if (address < first || address >= first + sizeof handles)
        return false;
    size_t at = (address - first) / sizeof(struct device_handle);
    *gpu = (int)(at / MIG_ROOM);
    *mig = (int)(at % MIG_ROOM) - 1;
    return true;
}

unsigned int gpu_count(const struct snapshot *state) {
    unsigned long long count;
    if (state_unsigned(state, "gpu.count", &count) != NVML_SUCCESS)
        return 0;
    return count > MAX_GPUS ? MAX_GPUS : (unsigned int)count;
}

static bool flag(const struct snapshot *state, const char *key, bool other) {
    unsigned long long value;
    return state_unsigned(state, key, &value) == NVML_SUCCESS ? value != 0 : other;
}

bool gpu_lost(const struct snapshot *state, unsigned int gpu) {
    char key[MAX_KEY];
    snprintf(key, sizeof key, "gpu.%u.lost", gpu);
    return flag(state, key, false);
}

bool mig_present(const struct snapshot *state, int gpu, int mig) {
    char key[MAX_KEY];
    snprintf(key, sizeof key, "gpu.%d.mig.mode", gpu);
    if (mig < 0 || mig >= MAX_MIG || !flag(state, key, false))
        return false;
    snprintf(key, sizeof key, "gpu.%d.mig.%d.uuid", gpu, mig);
    return state_text(state, key) != NULL;
}

/* "hang.nvmlDeviceGetMemoryInfo_v2" is for that version alone, "hang.nvmlDeviceGetMemoryInfo" for every one, and
 * "hang.all" for every function. */
static const char *fault_after(const struct call *call, const char *prefix, const char *kind, bool by_name_alone) {
    char name[64], key[MAX_KEY + 32];
    snprintf(name, sizeof name, "%s", call->function);
    char *version = strrchr(name, '_');
    for (int width = 0; width < (by_name_alone ? 2 : 3); width++) {
        if (width == 1 && (version == NULL || version[1] != 'v'))
            continue;
        size_t length = width == 1 ? (size_t)(version - name) : strlen(name);
        snprintf(key, sizeof key, "%s%s.%.*s", prefix, kind, width == 2 ? 3 : (int)length, width == 2 ? "all" : name);
        const char *text = state_text(call->state, key);
        if (text != NULL)
            return text;
    }
    return NULL;
}

/* Where a handle is asked for, the faults of all GPUs were suffered before this one was found: only those are to come
 * that "gpu.0." and the function's own name tell; all else that is wrong with a GPU shows when its handle is used. */
static const char *fault(const struct call *call, const char *kind, bool of_gpu_alone) {
    char prefix[16];
    const char *text = of_gpu_alone ? NULL : fault_after(call, "", kind, false);
    if (text != NULL || call->gpu < 0)
        return text;
    snprintf(prefix, sizeof prefix, "gpu.%d.", call->gpu);
    return fault_after(call, prefix, kind, of_gpu_alone);
}

static double monotonic_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void sleep_slice(void) {
    struct timespec left = {0, (long)(SLICE_S * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue; /* a hung driver does not answer signals either */
}

/* Sleep as long as the state file says: a number of seconds, or "forever". Ends early when the file no longer says so. */
static void hang(struct call *call, bool of_gpu_alone) {
    const double began_s = monotonic_s();
    for (;;) {
        const char *text = fault(call, "hang", of_gpu_alone);
        double duration_s;
        if (text == NULL)
            return;
        if (strcmp(text, "forever") != 0 && (sscanf(text, "%lf", &duration_s) != 1 || monotonic_s() - began_s >= duration_s))
            return;
        sleep_slice();
        state_release(call->state);
        call->state = state_acquire();
    }
}

/* Hang, then give the error that the file wants. */
static nvmlReturn_t suffer(struct call *call, bool of_gpu_alone) {
    hang(call, of_gpu_alone);
    const char *text = fault(call, "error", of_gpu_alone);
    nvmlReturn_t error;
    if (text == NULL)
        return NVML_SUCCESS;
    return error_named(text + (*text == '!'), &error) ? error : NVML_ERROR_UNKNOWN;
}

static nvmlReturn_t faults(struct call *call) {
    call->holds_driver = flag(call->state, "hang.holds_driver", false);
    if (call->holds_driver)
        pthread_mutex_lock(&driver);
    return suffer(call, false);
}

nvmlReturn_t reach(struct call *call) {
    nvmlReturn_t result = suffer(call, true);
    return result == NVML_SUCCESS && gpu_lost(call->state, (unsigned int)call->gpu) ? NVML_ERROR_GPU_IS_LOST : result;
}

static unsigned long long generation(const struct snapshot *state) {
    unsigned long long number;
    return state_unsigned(state, "driver.generation", &number) == NVML_SUCCESS ? number : 0;
}

static bool initialised(const struct snapshot *state) {
    pthread_mutex_lock(&lock);
    bool valid = init_count > 0 && init_generation == generation(state) && flag(state, "driver.loaded", true);
    pthread_mutex_unlock(&lock);
    return valid;
}

nvmlReturn_t finish(struct call *call, nvmlReturn_t result) {
    if (call->holds_driver)
        pthread_mutex_unlock(&driver);
    if (call->state != NULL)
        state_release(call->state);
    call->state = NULL;
    return result;
}

static nvmlReturn_t open_call(struct call *call, const char *function) {
    *call = (struct call){.function = function, .gpu = -1, .mig = WHOLE_GPU};
    call->state = state_acquire();
    return call->state == NULL ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_SUCCESS;
}

nvmlReturn_t begin_init(struct call *call, const char *function) {
    nvmlReturn_t result = open_call(call, function);
    if (result == NVML_SUCCESS)
        result = faults(call);
    if (result == NVML_SUCCESS) {
        const char *text = state_text(call->state, "init.error");
        if (!flag(call->state, "driver.loaded", true))
            result = NVML_ERROR_DRIVER_NOT_LOADED;
        else if (text != NULL && !error_named(text + (*text == '!'), &result))
            result = NVML_ERROR_UNKNOWN;
    }
    return result == NVML_SUCCESS ? result : finish(call, result);
}

nvmlReturn_t count_init(struct call *call) {
    pthread_mutex_lock(&lock);
    if (init_generation != generation(call->state))
        init_count = 0;
    init_generation = generation(call->state);
    init_count++;
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

nvmlReturn_t count_shutdown(struct call *call) {
    pthread_mutex_lock(&lock);
    bool counted = init_count > 0 && init_generation == generation(call->state);
    if (counted)
        init_count--;
    pthread_mutex_unlock(&lock);
    return counted ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t begin(struct call *call, const char *function) {
    nvmlReturn_t result = open_call(call, function);
    if (result != NVML_SUCCESS || !initialised(call->state))
        return finish(call, NVML_ERROR_UNINITIALIZED);
    result = faults(call);
    return result == NVML_SUCCESS ? result : finish(call, result);
}

nvmlReturn_t begin_device(struct call *call, const char *function, nvmlDevice_t device) {
    nvmlReturn_t result = open_call(call, function);
    if (result != NVML_SUCCESS || !initialised(call->state))
        return finish(call, NVML_ERROR_UNINITIALIZED);
    int gpu, mig;
    if (!handle_known(device, &gpu, &mig) || (unsigned int)gpu >= gpu_count(call->state))
        return finish(call, NVML_ERROR_INVALID_ARGUMENT);
    call->gpu = gpu;
    call->mig = mig;
    result = faults(call);
    if (result == NVML_SUCCESS && !initialised(call->state))
        result = NVML_ERROR_UNINITIALIZED; /* the driver went while the call hung */
    if (result == NVML_SUCCESS && gpu_lost(call->state, (unsigned int)gpu))
        result = NVML_ERROR_GPU_IS_LOST;
    if (result == NVML_SUCCESS && mig != WHOLE_GPU && !mig_present(call->state, gpu, mig))
        result = NVML_ERROR_INVALID_ARGUMENT;
    return result == NVML_SUCCESS ? result : finish(call, result);
}

void key_of(const struct call *call, char key[MAX_KEY], const char *format, ...) {
    int length = call->mig == WHOLE_GPU ? snprintf(key, MAX_KEY, "gpu.%d.", call->gpu)
                                        : snprintf(key, MAX_KEY, "gpu.%d.mig.%d.", call->gpu, call->mig);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key + length, (size_t)(MAX_KEY - length), format, arguments);
    va_end(arguments);
}

const char *own_text(const struct call *call, const char *name) {
    char key[MAX_KEY];
    key_of(call, key, "%s", name);
    return state_text(call->state, key);
}

nvmlReturn_t own_unsigned(const struct call *call, const char *name, unsigned long long *value) {
    char key[MAX_KEY];
    key_of(call, key, "%s", name);
    return state_unsigned(call->state, key, value);
}

nvmlReturn_t own_signed(const struct call *call, const char *name, long long *value) {
    char key[MAX_KEY];
    key_of(call, key, "%s", name);
    return state_signed(call->state, key, value);
}

nvmlReturn_t own_real(const struct call *call, const char *name, double *value) {
    char key[MAX_KEY];
    key_of(call, key, "%s", name);
    return state_real(call->state, key, value);
}

nvmlReturn_t own_uint(const struct call *call, const char *name, unsigned int *value) {
    unsigned long long wide;
    nvmlReturn_t result = own_unsigned(call, name, &wide);
    if (result == NVML_SUCCESS)
        *value = (unsigned int)wide;
    return result;
}

unsigned int own_uint_or(const struct call *call, const char *name, unsigned int other) {
    unsigned int value;
    return own_uint(call, name, &value) == NVML_SUCCESS ? value : other;
}

unsigned long long own_unsigned_or(const struct call *call, const char *name, unsigned long long other) {
    unsigned long long value;
    return own_unsigned(call, name, &value) == NVML_SUCCESS ? value : other;
}

nvmlReturn_t give_uint(const char *function, nvmlDevice_t device, const char *name, unsigned int *value) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    return finish(&call, value == NULL ? NVML_ERROR_INVALID_ARGUMENT : own_uint(&call, name, value));
}

nvmlReturn_t give_unsigned(const char *function, nvmlDevice_t device, const char *name, unsigned long long *value) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    return finish(&call, value == NULL ? NVML_ERROR_INVALID_ARGUMENT : own_unsigned(&call, name, value));
}

nvmlReturn_t copy_text(const char *from, char *text, unsigned int room) {
    nvmlReturn_t error;
    if (from == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    if (*from == '!' && error_named(from + 1, &error))
        return error;
    if (text == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(from) >= room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(text, from, strlen(from) + 1);
    return NVML_SUCCESS;
}

nvmlReturn_t give_text(const char *function, nvmlDevice_t device, const char *name, char *text, unsigned int room) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    return result == NVML_SUCCESS ? finish(&call, copy_text(own_text(&call, name), text, room)) : result;
}
