/* What are the values that are asked for by number (nvmlDeviceGetFieldValues)?
 *
 * A key "field.<id>" or "field.<id>.<scope>" answers any field, before the table below does.
 */
#include <stdio.h>
#include <string.h>

#include "call.h"

#define MAX_FIELD 308
#define ALL_LINKS 0xFFFFFFFFu

enum where {
    OF_GPU,       /* one value of the GPU */
    OF_LINK_ID,   /* of the link that the field's number tells */
    OF_LINK,      /* of the link that is the scope; all links together where the scope is ALL_LINKS */
    OF_ALL_LINKS, /* all links together */
    OF_POWER,     /* of the GPU, of its module (scope 1) or of its memory (scope 2) */
    LINKS,        /* how many links there are */
};

/* Fields `first` to `first + count - 1`; their links from `link` on. */
static const struct field {
    unsigned short first, count, link;
    enum where where;
    unsigned char type;
    const char *key;
} fields[] = {
    {1, 1, 0, OF_GPU, 1, "ecc.mode"},
    {2, 1, 0, OF_GPU, 1, "ecc.pending"},
    {3, 1, 0, OF_GPU, 3, "ecc.volatile.corrected.total"},
    {4, 1, 0, OF_GPU, 3, "ecc.volatile.uncorrected.total"},
    {5, 1, 0, OF_GPU, 3, "ecc.aggregate.corrected.total"},
    {6, 1, 0, OF_GPU, 3, "ecc.aggregate.uncorrected.total"},
    {7, 1, 0, OF_GPU, 3, "ecc.volatile.corrected.l1"},
    {8, 1, 0, OF_GPU, 3, "ecc.volatile.uncorrected.l1"},
    {9, 1, 0, OF_GPU, 3, "ecc.volatile.corrected.l2"},
    {10, 1, 0, OF_GPU, 3, "ecc.volatile.uncorrected.l2"},
    {11, 1, 0, OF_GPU, 3, "ecc.volatile.corrected.dram"},
    {12, 1, 0, OF_GPU, 3, "ecc.volatile.uncorrected.dram"},
    {13, 1, 0, OF_GPU, 3, "ecc.volatile.corrected.register_file"},
    {14, 1, 0, OF_GPU, 3, "ecc.volatile.uncorrected.register_file"},
    {15, 1, 0, OF_GPU, 3, "ecc.volatile.corrected.texture"},
    {16, 1, 0, OF_GPU, 3, "ecc.volatile.uncorrected.texture"},
    {17, 1, 0, OF_GPU, 3, "ecc.volatile.uncorrected.cbu"},
    {18, 1, 0, OF_GPU, 3, "ecc.aggregate.corrected.l1"},
    {19, 1, 0, OF_GPU, 3, "ecc.aggregate.uncorrected.l1"},
    {20, 1, 0, OF_GPU, 3, "ecc.aggregate.corrected.l2"},
    {21, 1, 0, OF_GPU, 3, "ecc.aggregate.uncorrected.l2"},
    {22, 1, 0, OF_GPU, 3, "ecc.aggregate.corrected.dram"},
    {23, 1, 0, OF_GPU, 3, "ecc.aggregate.uncorrected.dram"},
    {24, 1, 0, OF_GPU, 3, "ecc.aggregate.corrected.register_file"},
    {25, 1, 0, OF_GPU, 3, "ecc.aggregate.uncorrected.register_file"},
    {26, 1, 0, OF_GPU, 3, "ecc.aggregate.corrected.texture"},
    {27, 1, 0, OF_GPU, 3, "ecc.aggregate.uncorrected.texture"},
    {28, 1, 0, OF_GPU, 3, "ecc.aggregate.uncorrected.cbu"},
    {29, 1, 0, OF_GPU, 3, "retired.sbe_count"},
    {30, 1, 0, OF_GPU, 3, "retired.dbe_count"},
    {31, 1, 0, OF_GPU, 3, "retired.pending"},
    {32, 6, 0, OF_LINK_ID, 3, "error.crc_flit"},
    {38, 1, 0, OF_ALL_LINKS, 3, "error.crc_flit"},
    {39, 6, 0, OF_LINK_ID, 3, "error.crc_data"},
    {45, 1, 0, OF_ALL_LINKS, 3, "error.crc_data"},
    {46, 6, 0, OF_LINK_ID, 3, "error.replay"},
    {52, 1, 0, OF_ALL_LINKS, 3, "error.replay"},
    {53, 6, 0, OF_LINK_ID, 3, "error.recovery"},
    {59, 1, 0, OF_ALL_LINKS, 3, "error.recovery"},
    {74, 1, 0, OF_GPU, 3, "violation.power_ns"},
    {75, 1, 0, OF_GPU, 3, "violation.thermal_ns"},
    {76, 1, 0, OF_GPU, 3, "violation.sync_boost_ns"},
    {77, 1, 0, OF_GPU, 3, "violation.board_limit_ns"},
    {78, 1, 0, OF_GPU, 3, "violation.low_utilization_ns"},
    {79, 1, 0, OF_GPU, 3, "violation.reliability_ns"},
    {80, 1, 0, OF_GPU, 3, "violation.app_clocks_ns"},
    {81, 1, 0, OF_GPU, 3, "violation.base_clocks_ns"},
    {82, 1, 0, OF_GPU, 1, "temperature.memory_c"},
    {83, 1, 0, OF_GPU, 3, "energy_mj"},
    {84, 6, 0, OF_LINK_ID, 1, "speed_mbps"},
    {90, 1, 0, OF_ALL_LINKS, 1, "speed_mbps"},
    {91, 1, 0, LINKS, 1, ""},
    {92, 1, 0, OF_GPU, 3, "retired.sbe_pending"},
    {93, 1, 0, OF_GPU, 3, "retired.dbe_pending"},
    {94, 1, 0, OF_GPU, 1, "pcie.replays"},
    {95, 1, 0, OF_GPU, 1, "pcie.replay_rollovers"},
    {96, 6, 6, OF_LINK_ID, 3, "error.crc_flit"},
    {102, 6, 6, OF_LINK_ID, 3, "error.crc_data"},
    {108, 6, 6, OF_LINK_ID, 3, "error.replay"},
    {114, 6, 6, OF_LINK_ID, 3, "error.recovery"},
    {132, 6, 6, OF_LINK_ID, 1, "speed_mbps"},
    {138, 1, 0, OF_LINK, 3, "tx_kib"},
    {139, 1, 0, OF_LINK, 3, "rx_kib"},
    {140, 1, 0, OF_LINK, 3, "raw_tx_kib"},
    {141, 1, 0, OF_LINK, 3, "raw_rx_kib"},
    {142, 1, 0, OF_GPU, 1, "remap.corrected"},
    {143, 1, 0, OF_GPU, 1, "remap.uncorrected"},
    {144, 1, 0, OF_GPU, 1, "remap.pending"},
    {145, 1, 0, OF_GPU, 1, "remap.failure"},
    {146, 1, 0, OF_LINK, 1, "remote.link"},
    {147, 1, 0, OF_GPU, 1, "nvlink.switch_links"},
    {148, 12, 0, OF_LINK_ID, 3, "error.ecc_data"},
    {160, 1, 0, OF_ALL_LINKS, 3, "error.ecc_data"},
    {161, 1, 0, OF_LINK, 3, "error.replay"},
    {162, 1, 0, OF_LINK, 3, "error.recovery"},
    {163, 1, 0, OF_LINK, 3, "error.crc_flit"},
    {164, 1, 0, OF_LINK, 1, "speed_mbps"},
    {165, 1, 0, OF_LINK, 1, "state"},
    {166, 1, 0, OF_LINK, 1, "version"},
    {167, 1, 0, OF_LINK, 1, "power_state"},
    {168, 1, 0, OF_LINK, 1, "power_threshold"},
    {169, 1, 0, OF_GPU, 1, "pcie.l0_to_recovery"},
    {170, 1, 0, OF_GPU, 1, "c2c.links"},
    {173, 1, 0, OF_GPU, 1, "pcie.error.correctable"},
    {174, 1, 0, OF_GPU, 1, "pcie.error.naks_received"},
    {175, 1, 0, OF_GPU, 1, "pcie.error.receiver"},
    {176, 1, 0, OF_GPU, 1, "pcie.error.bad_tlp"},
    {177, 1, 0, OF_GPU, 1, "pcie.error.naks_sent"},
    {178, 1, 0, OF_GPU, 1, "pcie.error.bad_dllp"},
    {179, 1, 0, OF_GPU, 1, "pcie.error.non_fatal"},
    {180, 1, 0, OF_GPU, 1, "pcie.error.fatal"},
    {181, 1, 0, OF_GPU, 1, "pcie.error.unsupported_request"},
    {182, 1, 0, OF_GPU, 1, "pcie.error.lcrc"},
    {183, 1, 0, OF_GPU, 1, "pcie.error.lane"},
    {185, 1, 0, OF_POWER, 1, "power.average_mw"},
    {186, 1, 0, OF_POWER, 1, "power.instant_mw"},
    {187, 1, 0, OF_POWER, 1, "power.min_limit_mw"},
    {188, 1, 0, OF_POWER, 1, "power.max_limit_mw"},
    {189, 1, 0, OF_POWER, 1, "power.default_limit_mw"},
    {190, 1, 0, OF_POWER, 1, "power.enforced_limit_mw"},
    {191, 1, 0, OF_POWER, 3, "energy_mj"},
    {192, 1, 0, OF_POWER, 1, "power.limit_mw"},
    {193, 1, 0, OF_GPU, 5, "temperature.tlimit.shutdown_c"},
    {194, 1, 0, OF_GPU, 5, "temperature.tlimit.slowdown_c"},
    {195, 1, 0, OF_GPU, 5, "temperature.tlimit.memory_max_c"},
    {196, 1, 0, OF_GPU, 5, "temperature.tlimit.gpu_max_c"},
    {197, 1, 0, OF_GPU, 3, "pcie.tx_bytes"},
    {198, 1, 0, OF_GPU, 3, "pcie.rx_bytes"},
    {201, 1, 0, OF_LINK, 3, "xmit_packets"},
    {202, 1, 0, OF_LINK, 3, "xmit_bytes"},
    {203, 1, 0, OF_LINK, 3, "rcv_packets"},
    {204, 1, 0, OF_LINK, 3, "rcv_bytes"},
    {206, 1, 0, OF_LINK, 3, "error.malformed_packets"},
    {207, 1, 0, OF_LINK, 3, "error.buffer_overruns"},
    {208, 1, 0, OF_LINK, 3, "error.rcv"},
    {209, 1, 0, OF_LINK, 3, "error.rcv_remote"},
    {210, 1, 0, OF_LINK, 3, "error.rcv_general"},
    {211, 1, 0, OF_LINK, 3, "error.local_integrity"},
    {212, 1, 0, OF_LINK, 3, "error.xmit_discards"},
    {213, 1, 0, OF_LINK, 3, "recovery.successful"},
    {214, 1, 0, OF_LINK, 3, "recovery.failed"},
    {215, 1, 0, OF_LINK, 3, "recovery.events"},
    {219, 1, 0, OF_LINK, 3, "error.effective"},
    {220, 1, 0, OF_LINK, 3, "error.effective_ber"},
    {221, 1, 0, OF_LINK, 3, "error.symbol"},
    {222, 1, 0, OF_LINK, 3, "error.symbol_ber"},
    {230, 1, 0, OF_GPU, 1, "recovery_action"},
    {269, 1, 0, OF_GPU, 3, "violation.sw_thermal_ns"},
    {270, 1, 0, OF_GPU, 3, "violation.hw_thermal_ns"},
    {271, 1, 0, OF_GPU, 3, "violation.hw_power_brake_ns"},
    {301, 1, 0, OF_GPU, 1, "remap.corrected_inactive"},
    {302, 1, 0, OF_GPU, 1, "remap.uncorrected_inactive"},
    {303, 1, 0, OF_GPU, 1, "bank_remap.active"},
    {304, 1, 0, OF_GPU, 1, "bank_remap.inactive"},
    {305, 1, 0, OF_GPU, 1, "bank_remap.histogram.max"},
    {306, 1, 0, OF_GPU, 1, "bank_remap.histogram.none"},
    {307, 1, 0, OF_GPU, 1, "bank_remap.pending"},
};

static const struct field *field_of(unsigned int id) {
    for (size_t at = 0; at < sizeof fields / sizeof *fields; at++)
        if (id >= fields[at].first && id < (unsigned int)fields[at].first + fields[at].count)
            return &fields[at];
    return NULL;
}

static nvmlReturn_t number_of(const struct call *call, const char *key, unsigned int type, nvmlValue_t *value) {
    unsigned long long whole;
    long long with_sign;
    nvmlReturn_t result;
    switch (type) {
    case NVML_VALUE_TYPE_DOUBLE:
        return state_real(call->state, key, &value->dVal);
    case NVML_VALUE_TYPE_SIGNED_LONG_LONG:
        return state_signed(call->state, key, &value->sllVal);
    case NVML_VALUE_TYPE_SIGNED_INT:
        result = state_signed(call->state, key, &with_sign);
        if (result == NVML_SUCCESS)
            value->siVal = (int)with_sign;
        return result;
    case NVML_VALUE_TYPE_UNSIGNED_INT:
        result = state_unsigned(call->state, key, &whole);
        if (result == NVML_SUCCESS)
            value->uiVal = (unsigned int)whole;
        return result;
    default:
        return state_unsigned(call->state, key, &value->ullVal);
    }
}

static nvmlReturn_t over_links(const struct call *call, const char *what, unsigned int type, nvmlValue_t *value) {
    unsigned long long sum = 0;
    nvmlReturn_t result = NVML_ERROR_NOT_SUPPORTED;
    for (unsigned int link = 0; link < MAX_LINKS; link++) {
        char key[MAX_KEY];
        unsigned long long more;
        key_of(call, key, "nvlink.%u.%s", link, what);
        if (state_unsigned(call->state, key, &more) == NVML_SUCCESS) {
            sum = type == NVML_VALUE_TYPE_UNSIGNED_INT ? more : sum + more; /* a speed is common, a count is summed */
            result = NVML_SUCCESS;
        }
    }
    value->ullVal = sum;
    return result;
}

static nvmlReturn_t link_count(const struct call *call, nvmlValue_t *value) {
    unsigned int count = 0;
    for (unsigned int link = 0; link < MAX_LINKS; link++) {
        char key[MAX_KEY];
        key_of(call, key, "nvlink.%u.state", link);
        count += state_text(call->state, key) != NULL;
    }
    value->uiVal = count;
    return count > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t looked_up(const struct call *call, const struct field *field, nvmlFieldValue_t *asked) {
    static const char *const scopes[] = {"", "module.", "memory_only."};
    char key[MAX_KEY];
    unsigned int link = asked->scopeId;
    switch (field->where) {
    case LINKS:
        return link_count(call, &asked->value);
    case OF_ALL_LINKS:
        return over_links(call, field->key, field->type, &asked->value);
    case OF_POWER:
        if (asked->scopeId > 2)
            return NVML_ERROR_INVALID_ARGUMENT;
        key_of(call, key, "%s%s", scopes[asked->scopeId], field->key);
        break;
    case OF_GPU:
        key_of(call, key, "%s", field->key);
        break;
    case OF_LINK_ID:
        link = field->link + asked->fieldId - field->first;
        /* fall through */
    case OF_LINK:
        if (link == ALL_LINKS)
            return over_links(call, field->key, field->type, &asked->value);
        if (link >= MAX_LINKS)
            return NVML_ERROR_INVALID_ARGUMENT;
        key_of(call, key, "nvlink.%u.%s", link, field->key);
        break;
    }
    return number_of(call, key, field->type, &asked->value);
}

static nvmlReturn_t answer(const struct call *call, nvmlFieldValue_t *asked) {
    char key[MAX_KEY];
    const struct field *field = field_of(asked->fieldId);
    asked->valueType = field == NULL ? (unsigned int)NVML_VALUE_TYPE_UNSIGNED_LONG_LONG : field->type;
    asked->value.ullVal = 0;
    if (asked->fieldId == 0 || asked->fieldId >= MAX_FIELD)
        return NVML_ERROR_INVALID_ARGUMENT;
    key_of(call, key, "field.%u.%u", asked->fieldId, asked->scopeId);
    if (state_text(call->state, key) == NULL)
        key_of(call, key, "field.%u", asked->fieldId);
    if (state_text(call->state, key) != NULL)
        return number_of(call, key, asked->valueType, &asked->value);
    return field == NULL ? NVML_ERROR_NOT_SUPPORTED : looked_up(call, field, asked);
}

NVML_API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    BEGIN_DEVICE(call, device);
    if (count <= 0 || values == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    for (int at = 0; at < count; at++) {
        values[at].nvmlReturn = answer(&call, &values[at]);
        values[at].timestamp = (long long)(state_now_s(call.state) * 1e6);
        values[at].latencyUsec = 0;
    }
    return finish(&call, NVML_SUCCESS);
}
