/* What has happened since a program began to listen? "event.<number> = <kind> <gpu> <datum> [gpu instance] [compute instance]". */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "call.h"

#define MAX_SETS 64
#define POLL_S 0.01
#define ALL_KINDS 0xFF9Full

struct event_set {
    bool listens[MAX_GPUS];
    unsigned long long kinds[MAX_GPUS];
    unsigned long long after[MAX_GPUS]; /* number of the first event that this listener may still get */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct event_set *sets[MAX_SETS];

static int place_of(nvmlEventSet_t set) {
    for (int at = 0; at < MAX_SETS; at++)
        if (sets[at] == set && set != NULL)
            return at;
    return -1;
}

NVML_API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    struct call call;
    nvmlReturn_t result = begin(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    if (set == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    *set = NULL;
    pthread_mutex_lock(&lock);
    for (int at = 0; at < MAX_SETS && *set == NULL; at++)
        if (sets[at] == NULL)
            *set = sets[at] = calloc(1, sizeof **set);
    pthread_mutex_unlock(&lock);
    return finish(&call, *set == NULL ? NVML_ERROR_MEMORY : NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    pthread_mutex_lock(&lock);
    int at = place_of(set);
    if (at >= 0)
        sets[at] = NULL;
    pthread_mutex_unlock(&lock);
    if (at >= 0)
        free(set);
    return at >= 0 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static unsigned long long supported(const struct call *call) {
    return own_unsigned_or(call, "events.supported", ALL_KINDS);
}

NVML_API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *kinds) {
    BEGIN_DEVICE(call, device);
    if (kinds == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    *kinds = supported(&call);
    return finish(&call, NVML_SUCCESS);
}

/* What was in the queue before is past, unless "events.replay" says that it is still to come. */
static unsigned long long newest(const struct call *call) {
    size_t count;
    unsigned long long replay;
    const struct queued_event *events = state_events(call->state, &count);
    if (state_unsigned(call->state, "events.replay", &replay) == NVML_SUCCESS && replay != 0)
        return 0;
    return count == 0 ? 0 : events[count - 1].number + 1;
}

NVML_API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long kinds, nvmlEventSet_t set) {
    BEGIN_DEVICE(call, device);
    if ((kinds & ~supported(&call)) != 0)
        return finish(&call, NVML_ERROR_NOT_SUPPORTED);
    pthread_mutex_lock(&lock);
    const bool known = place_of(set) >= 0;
    if (known) {
        if (!set->listens[call.gpu])
            set->after[call.gpu] = newest(&call);
        set->listens[call.gpu] = true;
        set->kinds[call.gpu] |= kinds;
    }
    pthread_mutex_unlock(&lock);
    return finish(&call, known ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT);
}

/* Take the next event that the set listens for; GPU_IS_LOST when there is none any more and a GPU is gone. */
static nvmlReturn_t take(const struct call *call, nvmlEventSet_t set, nvmlEventData_t *data) {
    size_t count;
    const struct queued_event *events = state_events(call->state, &count);
    for (size_t at = 0; at < count; at++) {
        const struct queued_event *event = &events[at];
        if (event->gpu >= MAX_GPUS || !set->listens[event->gpu] || event->number < set->after[event->gpu])
            continue;
        set->after[event->gpu] = event->number + 1;
        if ((set->kinds[event->gpu] & event->type) == 0)
            continue;
        *data = (nvmlEventData_t){handle_of((int)event->gpu, WHOLE_GPU), event->type, event->data, event->gpu_instance,
                                  event->compute_instance};
        return NVML_SUCCESS;
    }
    for (unsigned int gpu = 0; gpu < MAX_GPUS; gpu++)
        if (set->listens[gpu] && gpu_lost(call->state, gpu))
            return NVML_ERROR_GPU_IS_LOST;
    return NVML_ERROR_TIMEOUT;
}

static double monotonic_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static nvmlReturn_t wait_for(const char *function, nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    const double until_s = monotonic_s() + 1e-3 * (double)timeout_ms;
    for (;;) {
        struct call call;
        nvmlReturn_t result = begin(&call, function);
        if (result != NVML_SUCCESS)
            return result;
        pthread_mutex_lock(&lock);
        const bool known = place_of(set) >= 0;
        result = known && data != NULL ? take(&call, set, data) : NVML_ERROR_INVALID_ARGUMENT;
        pthread_mutex_unlock(&lock);
        finish(&call, result);
        if (result != NVML_ERROR_TIMEOUT || monotonic_s() >= until_s)
            return result;
        nanosleep(&(struct timespec){0, (long)(POLL_S * 1e9)}, NULL);
    }
}

NVML_API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    nvmlEventData_t wide;
    nvmlReturn_t result = wait_for(__func__, set, data == NULL ? NULL : &wide, timeout_ms);
    if (result == NVML_SUCCESS) { /* the first version ends before the instances */
        data->device = wide.device;
        data->eventType = wide.eventType;
        data->eventData = wide.eventData;
    }
    return result;
}

NVML_API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    return wait_for(__func__, set, data, timeout_ms);
}
