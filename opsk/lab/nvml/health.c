/* Which memory errors has a GPU counted, which rows and pages has it given up? */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"

static const char *const kinds[] = {"corrected", "uncorrected"};
static const char *const spans[] = {"volatile", "aggregate"};
static const char *const places[] = {"l1",      "l2",          "dram", "register_file",
                                     "texture", "texture_shm", "cbu",  "sram"};
#define PLACES (sizeof places / sizeof *places)

NVML_API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending) {
    nvmlReturn_t result = give_uint(__func__, device, "ecc.mode", now);
    if (result != NVML_SUCCESS || pending == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    result = give_uint(__func__, device, "ecc.pending", pending);
    if (result == NVML_ERROR_NOT_SUPPORTED) {
        *pending = *now;
        result = NVML_SUCCESS;
    }
    return result;
}

NVML_API nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, unsigned int *mode) {
    return give_uint(__func__, device, "ecc.default", mode);
}

/* Key "ecc.<volatile|aggregate>.<corrected|uncorrected>.<place>". */
static nvmlReturn_t ecc(const struct call *call, unsigned int kind, unsigned int span, const char *place,
                        unsigned long long *errors) {
    char key[MAX_KEY];
    key_of(call, key, "ecc.%s.%s.%s", spans[span], kinds[kind], place);
    return state_unsigned(call->state, key, errors);
}

/* The total that the file gives, else the sum over the places that it gives. */
static nvmlReturn_t ecc_total(const struct call *call, unsigned int kind, unsigned int span,
                              unsigned long long *errors) {
    nvmlReturn_t result = ecc(call, kind, span, "total", errors);
    if (result != NVML_ERROR_NOT_SUPPORTED)
        return result;
    *errors = 0;
    for (size_t place = 0; place < PLACES; place++) {
        unsigned long long more;
        if (ecc(call, kind, span, places[place], &more) == NVML_SUCCESS) {
            *errors += more;
            result = NVML_SUCCESS;
        }
    }
    return result;
}

NVML_API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int kind, unsigned int span,
                                                  unsigned long long *errors) {
    BEGIN_DEVICE(call, device);
    if (kind > 1 || span > 1 || errors == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    return finish(&call, ecc_total(&call, kind, span, errors));
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int kind, unsigned int span,
                                                      unsigned int place, unsigned long long *errors) {
    BEGIN_DEVICE(call, device);
    if (kind > 1 || span > 1 || place >= PLACES || errors == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    return finish(&call, ecc(&call, kind, span, places[place], errors));
}

NVML_API nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, unsigned int kind, unsigned int span,
                                                     nvmlEccErrorCounts_t *counts) {
    BEGIN_DEVICE(call, device);
    if (kind > 1 || span > 1 || counts == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    unsigned long long *const fields[] = {&counts->l1Cache, &counts->l2Cache, &counts->deviceMemory,
                                          &counts->registerFile};
    unsigned long long any;
    result = ecc_total(&call, kind, span, &any);
    for (size_t place = 0; place < 4; place++)
        if (ecc(&call, kind, span, places[place], fields[place]) != NVML_SUCCESS)
            *fields[place] = 0;
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_v1_t *status) {
    BEGIN_DEVICE(call, device);
    if (status == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (status->version != NVML_VERSION_OF(*status, 1))
        return finish(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    result = own_uint(&call, "ecc.sram.threshold_exceeded", &status->bThresholdExceeded);
    status->aggregateUncParity = own_unsigned_or(&call, "ecc.sram.aggregate.parity", 0);
    status->aggregateUncSecDed = own_unsigned_or(&call, "ecc.sram.aggregate.secded", 0);
    status->aggregateCor = own_unsigned_or(&call, "ecc.sram.aggregate.corrected", 0);
    status->volatileUncParity = own_unsigned_or(&call, "ecc.sram.volatile.parity", 0);
    status->volatileUncSecDed = own_unsigned_or(&call, "ecc.sram.volatile.secded", 0);
    status->volatileCor = own_unsigned_or(&call, "ecc.sram.volatile.corrected", 0);
    status->aggregateUncBucketL2 = own_unsigned_or(&call, "ecc.sram.bucket.l2", 0);
    status->aggregateUncBucketSm = own_unsigned_or(&call, "ecc.sram.bucket.sm", 0);
    status->aggregateUncBucketPcie = own_unsigned_or(&call, "ecc.sram.bucket.pcie", 0);
    status->aggregateUncBucketMcu = own_unsigned_or(&call, "ecc.sram.bucket.mcu", 0);
    status->aggregateUncBucketOther = own_unsigned_or(&call, "ecc.sram.bucket.other", 0);
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                                                unsigned int *pending, unsigned int *failed) {
    BEGIN_DEVICE(call, device);
    if (corrected == NULL || uncorrected == NULL || pending == NULL || failed == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    result = own_uint(&call, "remap.corrected", corrected);
    if (result == NVML_SUCCESS)
        result = own_uint(&call, "remap.uncorrected", uncorrected);
    *pending = own_uint_or(&call, "remap.pending", 0);
    *failed = own_uint_or(&call, "remap.failure", 0);
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlDeviceGetRemappedRows_v2(nvmlDevice_t device, nvmlRemappedRowsInfo_v2_t *info) {
    BEGIN_DEVICE(call, device);
    if (info == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    result = own_uint(&call, "remap.corrected", &info->corrActiveRemaps);
    if (result == NVML_SUCCESS)
        result = own_uint(&call, "remap.uncorrected", &info->uncActiveRemaps);
    info->corrInactiveRemaps = own_uint_or(&call, "remap.corrected_inactive", 0);
    info->uncInactiveRemaps = own_uint_or(&call, "remap.uncorrected_inactive", 0);
    info->bPending = own_uint_or(&call, "remap.pending", 0);
    info->bfailureOccurred = own_uint_or(&call, "remap.failure", 0);
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *banks) {
    BEGIN_DEVICE(call, device);
    if (banks == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    result = own_uint(&call, "remap.histogram.max", &banks->max);
    banks->high = own_uint_or(&call, "remap.histogram.high", 0);
    banks->partial = own_uint_or(&call, "remap.histogram.partial", 0);
    banks->low = own_uint_or(&call, "remap.histogram.low", 0);
    banks->none = own_uint_or(&call, "remap.histogram.none", 0);
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlDeviceGetBankRemapperStatus_v1(nvmlDevice_t device, nvmlEccBankRemapperStatus_v1_t *status) {
    BEGIN_DEVICE(call, device);
    if (status == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    result = own_uint(&call, "bank_remap.active", &status->activeRemappings);
    status->inactiveRemappings = own_uint_or(&call, "bank_remap.inactive", 0);
    status->bPending = own_uint_or(&call, "bank_remap.pending", 0);
    status->histogram.maxSpareGroupCount = own_uint_or(&call, "bank_remap.histogram.max", 0);
    status->histogram.noSpareGroupCount = own_uint_or(&call, "bank_remap.histogram.none", 0);
    return finish(&call, result);
}

/* "0x1f000 1700000000, 0x2f000 1700000001": addresses, each with the time of its retirement where that is known. */
static nvmlReturn_t retired(const char *function, nvmlDevice_t device, unsigned int cause, unsigned int *count,
                            unsigned long long *addresses, unsigned long long *times) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    if (cause > 1 || count == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    const char *text = own_text(&call, cause == 0 ? "retired.sbe" : "retired.dbe");
    if (text == NULL)
        return finish(&call, NVML_ERROR_NOT_SUPPORTED);
    const unsigned int room = addresses == NULL ? 0 : *count;
    unsigned int found = 0;
    while (*text != '\0') {
        char *end;
        unsigned long long address = strtoull(text, &end, 16), time = 0;
        if (end == text)
            break;
        if (*end == ' ')
            time = strtoull(end, &end, 10);
        if (found < room) {
            addresses[found] = address;
            if (times != NULL)
                times[found] = time;
        }
        found++;
        text = end + strspn(end, ", ");
    }
    *count = found;
    return finish(&call, found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned int cause, unsigned int *count,
                                                unsigned long long *addresses) {
    return retired(__func__, device, cause, count, addresses, NULL);
}

NVML_API nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned int cause, unsigned int *count,
                                                   unsigned long long *addresses, unsigned long long *times) {
    return retired(__func__, device, cause, count, addresses, times);
}

NVML_API nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned int *pending) {
    return give_uint(__func__, device, "retired.pending", pending);
}
