/* How is a GPU attached to its host, and to its neighbours' hosts: PCIe, NUMA, topology? */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"

enum { TOPOLOGY_INTERNAL = 0, TOPOLOGY_NODE = 40, TOPOLOGY_SYSTEM = 50 };

#define UINT(function, name)                                                                                           \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, unsigned int *value) {                                         \
        return give_uint(__func__, device, name, value);                                                               \
    }

UINT(nvmlDeviceGetPcieReplayCounter, "pcie.replays")
UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.generation")
UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.max_generation")
UINT(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie.gpu_max_generation")
UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie.max_width")
UINT(nvmlDeviceGetPcieSpeed, "pcie.speed_mbps")
UINT(nvmlDeviceGetPcieLinkMaxSpeed, "pcie.max_speed")

NVML_API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned int counter, unsigned int *kib_per_s) {
    if (counter > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    return give_uint(__func__, device, counter == 0 ? "pcie.tx_kib_per_s" : "pcie.rx_kib_per_s", kib_per_s);
}

/* A list like "0-47,96-143" as bits. */
static nvmlReturn_t bits(const char *text, unsigned int words, unsigned long *set) {
    const unsigned long width = sizeof(unsigned long) * CHAR_BIT;
    if (text == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    if (set == NULL || words == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(set, 0, words * sizeof *set);
    while (*text != '\0') {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (end == text)
            return NVML_ERROR_UNKNOWN;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long bit = first; bit <= last && bit < words * width; bit++)
            set[bit / width] |= 1ul << (bit % width);
        text = end + strspn(end, ", ");
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t affinity(const char *function, nvmlDevice_t device, const char *name, unsigned int words,
                             unsigned long *set) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    return result == NVML_SUCCESS ? finish(&call, bits(own_text(&call, name), words, set)) : result;
}

NVML_API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *set) {
    return affinity(__func__, device, "cpu_affinity", words, set);
}

NVML_API nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words, unsigned long *set,
                                                          unsigned int scope) {
    (void)scope;
    return affinity(__func__, device, "cpu_affinity", words, set);
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *set,
                                                  unsigned int scope) {
    (void)scope;
    return affinity(__func__, device, "numa_node", words, set);
}

/* "topology.0.1", either way round; where it is not told, what the NUMA nodes of the two imply. */
static unsigned int level_between(const struct call *call, int one, int other) {
    char key[MAX_KEY];
    unsigned long long level;
    if (one == other)
        return TOPOLOGY_INTERNAL;
    snprintf(key, sizeof key, "topology.%d.%d", one, other);
    if (state_unsigned(call->state, key, &level) == NVML_SUCCESS)
        return (unsigned int)level;
    snprintf(key, sizeof key, "topology.%d.%d", other, one);
    if (state_unsigned(call->state, key, &level) == NVML_SUCCESS)
        return (unsigned int)level;
    struct call left = *call, right = *call;
    left.mig = right.mig = WHOLE_GPU;
    left.gpu = one;
    right.gpu = other;
    return own_uint_or(&left, "numa_node", 0) == own_uint_or(&right, "numa_node", 0) ? TOPOLOGY_NODE : TOPOLOGY_SYSTEM;
}

NVML_API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, unsigned int *level) {
    struct call call;
    int gpu, mig;
    nvmlReturn_t result = begin_device(&call, __func__, one);
    if (result != NVML_SUCCESS)
        return result;
    if (level == NULL || !handle_known(other, &gpu, &mig) || (unsigned int)gpu >= gpu_count(call.state))
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    *level = level_between(&call, call.gpu, gpu);
    return finish(&call, gpu_lost(call.state, (unsigned int)gpu) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned int level, unsigned int *count,
                                                       nvmlDevice_t *devices) {
    BEGIN_DEVICE(call, device);
    if (count == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    const unsigned int room = *count;
    *count = 0;
    for (int gpu = 0; gpu < (int)gpu_count(call.state); gpu++) {
        if (gpu == call.gpu || level_between(&call, call.gpu, gpu) != level)
            continue;
        if (devices != NULL && *count >= room)
            return finish(&call, NVML_ERROR_INSUFFICIENT_SIZE);
        if (devices != NULL)
            devices[*count] = handle_of(gpu, WHOLE_GPU);
        (*count)++;
    }
    return finish(&call, NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, unsigned int capability,
                                             unsigned int *status) {
    struct call call;
    char key[MAX_KEY];
    int gpu, mig;
    unsigned long long value;
    nvmlReturn_t result = begin_device(&call, __func__, one);
    if (result != NVML_SUCCESS)
        return result;
    if (status == NULL || capability > 5 || !handle_known(other, &gpu, &mig))
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    snprintf(key, sizeof key, "p2p.%d.%d.%u", call.gpu, gpu, capability);
    result = state_unsigned(call.state, key, &value);
    if (result == NVML_SUCCESS)
        *status = (unsigned int)value;
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int *same) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, __func__, one);
    if (result != NVML_SUCCESS)
        return result;
    if (same == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    *same = one == other;
    return finish(&call, NVML_SUCCESS);
}
