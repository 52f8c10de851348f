/* What do the performance counters say between two samples? "gpu.0.gpm.<metric>", of a MIG device its own.
 *
 * A sample keeps the state of its moment. A metric is what the later one says: the file gives what has been between.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"

#define MAX_SAMPLES 1024
#define GPM_VERSION 1

struct gpm_sample {
    struct snapshot *state; /* NULL until it is filled */
    int gpu, mig;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpm_sample *samples[MAX_SAMPLES]; /* so that what is no sample is refused */

static int place_of(nvmlGpmSample_t sample) {
    for (int at = 0; at < MAX_SAMPLES; at++)
        if (samples[at] == sample && sample != NULL)
            return at;
    return -1;
}

NVML_API nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
    struct call call;
    nvmlReturn_t result = begin(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    if (sample == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    *sample = NULL;
    pthread_mutex_lock(&lock);
    for (int at = 0; at < MAX_SAMPLES && *sample == NULL; at++)
        if (samples[at] == NULL)
            *sample = samples[at] = calloc(1, sizeof **sample);
    pthread_mutex_unlock(&lock);
    return finish(&call, *sample == NULL ? NVML_ERROR_MEMORY : NVML_SUCCESS);
}

/* Needs no Init: a program gives its samples back after a driver reload as well. */
NVML_API nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    pthread_mutex_lock(&lock);
    int at = place_of(sample);
    if (at >= 0)
        samples[at] = NULL;
    pthread_mutex_unlock(&lock);
    if (at < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (sample->state != NULL)
        state_release(sample->state);
    free(sample);
    return NVML_SUCCESS;
}

static nvmlReturn_t fill(struct call *call, int mig, nvmlGpmSample_t sample) {
    if (own_uint_or(call, "gpm.supported", 0) == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    struct snapshot *kept = state_keep(call->state), *former = NULL;
    pthread_mutex_lock(&lock);
    bool known = place_of(sample) >= 0;
    if (known) {
        former = sample->state;
        *sample = (struct gpm_sample){kept, call->gpu, mig};
    }
    pthread_mutex_unlock(&lock);
    if (!known)
        former = kept;
    if (former != NULL)
        state_release(former);
    return known ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    BEGIN_DEVICE(call, device);
    return finish(&call, call.mig == WHOLE_GPU ? fill(&call, WHOLE_GPU, sample) : NVML_ERROR_INVALID_ARGUMENT);
}

NVML_API nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gpu_instance, nvmlGpmSample_t sample) {
    BEGIN_DEVICE(call, device);
    for (int mig = 0; call.mig == WHOLE_GPU && mig < MAX_MIG; mig++) {
        struct call instance = call;
        instance.mig = mig;
        if (mig_present(call.state, call.gpu, mig) && own_uint_or(&instance, "gpu_instance", NVML_NONE_ID) == gpu_instance)
            return finish(&call, fill(&call, mig, sample));
    }
    return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
}

static nvmlReturn_t metric(const struct gpm_sample *sample, unsigned int id, double *value) {
    struct call device = {.state = sample->state, .gpu = sample->gpu, .mig = sample->mig};
    char name[32];
    unsigned long long count;
    if (id == 0 || id >= NVML_GPM_METRIC_MAX)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(name, sizeof name, "gpm.%u.rate", id);
    const bool counter = own_text(&device, name) != NULL;
    snprintf(name, sizeof name, "gpm.%u", id);
    nvmlReturn_t result = counter ? own_unsigned(&device, name, &count) : own_real(&device, name, value);
    if (counter && result == NVML_SUCCESS)
        *value = (double)count;
    return result;
}

/* A copy whose state cannot go away under the reader. */
static bool borrow(nvmlGpmSample_t sample, struct gpm_sample *copy) {
    bool filled = place_of(sample) >= 0 && sample->state != NULL;
    if (filled) {
        *copy = *sample;
        state_keep(copy->state);
    }
    return filled;
}

NVML_API nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *wanted) {
    struct call call;
    struct gpm_sample earlier, later;
    nvmlReturn_t result = begin(&call, __func__);
    if (result != NVML_SUCCESS)
        return result;
    if (wanted == NULL || wanted->numMetrics > NVML_GPM_METRIC_MAX)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (wanted->version != GPM_VERSION)
        return finish(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    pthread_mutex_lock(&lock);
    const bool have_earlier = borrow(wanted->sample1, &earlier), have_later = borrow(wanted->sample2, &later);
    pthread_mutex_unlock(&lock);
    result = NVML_ERROR_INVALID_ARGUMENT;
    if (have_earlier && have_later && earlier.gpu == later.gpu && earlier.mig == later.mig) {
        for (unsigned int at = 0; at < wanted->numMetrics; at++) {
            nvmlGpmMetric_t *one = &wanted->metrics[at];
            one->value = 0.0;
            one->nvmlReturn = metric(&later, one->metricId, &one->value);
            one->metricInfo.shortName = one->metricInfo.longName = "metric of the stand-in";
            one->metricInfo.unit = "";
        }
        result = gpu_lost(call.state, (unsigned int)later.gpu) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
    }
    if (have_earlier)
        state_release(earlier.state);
    if (have_later)
        state_release(later.state);
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support) {
    BEGIN_DEVICE(call, device);
    if (support == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (support->version != GPM_VERSION)
        return finish(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    support->isSupportedDevice = own_uint_or(&call, "gpm.supported", 0);
    return finish(&call, NVML_SUCCESS);
}
