/* How are a GPU's NVLinks, and its place in the NVLink fabric? */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "call.h"

static nvmlReturn_t link_value(const char *function, nvmlDevice_t device, unsigned int link, const char *what,
                               unsigned long long *value) {
    struct call call;
    char key[MAX_KEY];
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    if (value == NULL || link >= MAX_LINKS)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    key_of(&call, key, "nvlink.%u.%s", link, what);
    return finish(&call, state_unsigned(call.state, key, value));
}

static nvmlReturn_t link_uint(const char *function, nvmlDevice_t device, unsigned int link, const char *what,
                              unsigned int *value) {
    unsigned long long wide = 0;
    nvmlReturn_t result = link_value(function, device, link, what, value == NULL ? NULL : &wide);
    if (result == NVML_SUCCESS)
        *value = (unsigned int)wide;
    return result;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *state) {
    return link_uint(__func__, device, link, "state", state);
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version) {
    return link_uint(__func__, device, link, "version", version);
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, unsigned int *type) {
    return link_uint(__func__, device, link, "remote.type", type);
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, unsigned int capability,
                                                    unsigned int *there) {
    char name[32];
    snprintf(name, sizeof name, "capability.%u", capability);
    return link_uint(__func__, device, link, name, there);
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, unsigned int counter,
                                                      unsigned long long *errors) {
    static const char *const names[] = {"error.replay", "error.recovery", "error.crc_flit", "error.crc_data",
                                        "error.ecc_data"};
    return counter < 5 ? link_value(__func__, device, link, names[counter], errors) : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t remote_pci(const char *function, nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *info) {
    struct call call;
    char key[MAX_KEY];
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    if (info == NULL || link >= MAX_LINKS)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    key_of(&call, key, "nvlink.%u.remote.pci", link);
    return finish(&call, fill_pci(state_text(call.state, key), info));
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *info) {
    return remote_pci(__func__, device, link, info);
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *info) {
    return remote_pci(__func__, device, link, info);
}

/* Sixteen bytes of hexadecimal digits, dashes anywhere; zero where there is no text. */
static bool uuid_bytes(const char *text, unsigned char bytes[16]) {
    size_t digits = 0;
    memset(bytes, 0, 16);
    for (; text != NULL && *text != '\0'; text++) {
        if (*text == '-')
            continue;
        if (!isxdigit((unsigned char)*text) || digits == 32)
            return false;
        unsigned char digit = (unsigned char)(isdigit((unsigned char)*text) ? *text - '0' : (*text | 32) - 'a' + 10);
        bytes[digits / 2] |= (unsigned char)(digit << (digits % 2 == 0 ? 4 : 0));
        digits++;
    }
    return digits == 0 || digits == 32;
}

static nvmlReturn_t fabric(const struct call *call, nvmlGpuFabricInfo_v3_t *info) {
    info->cliqueId = own_uint_or(call, "fabric.clique", 0);
    info->status = own_uint_or(call, "fabric.status", NVML_SUCCESS);
    info->healthMask = own_uint_or(call, "fabric.health_mask", 0);
    info->healthSummary = (unsigned char)own_uint_or(call, "fabric.health_summary", 0);
    if (!uuid_bytes(own_text(call, "fabric.cluster_uuid"), info->clusterUuid))
        return NVML_ERROR_UNKNOWN;
    return own_uint(call, "fabric.state", &info->state);
}

static nvmlReturn_t fabric_of(const char *function, nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *info) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    return result == NVML_SUCCESS ? finish(&call, fabric(&call, info)) : result;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    nvmlGpuFabricInfo_v3_t wide;
    nvmlReturn_t result = info == NULL ? NVML_ERROR_INVALID_ARGUMENT : fabric_of(__func__, device, &wide);
    if (result != NVML_SUCCESS)
        return result;
    memcpy(info->clusterUuid, wide.clusterUuid, sizeof info->clusterUuid);
    info->status = wide.status;
    info->cliqueId = wide.cliqueId;
    info->state = wide.state;
    return NVML_SUCCESS;
}

/* Both versions begin alike; the caller's version word says how much room there is. */
NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, void *info) {
    nvmlGpuFabricInfo_v3_t wide;
    unsigned int version;
    if (info == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    memcpy(&version, info, sizeof version);
    if (version != NVML_VERSION_OF(nvmlGpuFabricInfo_v2_t, 2) && version != NVML_VERSION_OF(nvmlGpuFabricInfo_v3_t, 3))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memset(&wide, 0, sizeof wide);
    nvmlReturn_t result = fabric_of(__func__, device, &wide);
    wide.version = version;
    if (result == NVML_SUCCESS)
        memcpy(info, &wide, version & 0xFFFFFF);
    return result;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfo_v4(nvmlDevice_t device, nvmlGpuFabricInfo_v4_t *info) {
    nvmlGpuFabricInfo_v3_t wide;
    nvmlReturn_t result = info == NULL ? NVML_ERROR_INVALID_ARGUMENT : fabric_of(__func__, device, &wide);
    if (result != NVML_SUCCESS)
        return result;
    memset(info, 0, sizeof *info);
    memcpy(info->clusterUuid, wide.clusterUuid, sizeof info->clusterUuid);
    info->status = wide.status;
    info->numCliques = 1;
    info->cliques[0].id = wide.cliqueId;
    info->state = (unsigned char)wide.state;
    info->healthMask = wide.healthMask;
    info->healthSummary = wide.healthSummary;
    return NVML_SUCCESS;
}

static void copy_bytes(const char *text, unsigned char bytes[16]) {
    memset(bytes, 0, 16);
    if (text != NULL)
        memcpy(bytes, text, strnlen(text, 16));
}

/* Where in the rack: versions 1 and 2 are laid out alike. */
NVML_API nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_v2_t *info) {
    BEGIN_DEVICE(call, device);
    if (info == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    if (info->version != NVML_VERSION_OF(*info, 1) && info->version != NVML_VERSION_OF(*info, 2))
        return finish(&call, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    unsigned int slot;
    result = own_uint(&call, "platform.slot", &slot);
    if (result != NVML_SUCCESS)
        return finish(&call, result);
    copy_bytes(own_text(&call, "platform.ib_guid"), info->ibGuid);
    copy_bytes(own_text(&call, "platform.chassis_serial"), info->chassisSerialNumber);
    info->slotNumber = (unsigned char)slot;
    info->trayIndex = (unsigned char)own_uint_or(&call, "platform.tray", 0);
    info->hostId = (unsigned char)own_uint_or(&call, "platform.host", 0);
    info->peerType = (unsigned char)own_uint_or(&call, "platform.peer_type", 0);
    info->moduleId = (unsigned char)own_uint_or(&call, "module_id", 0);
    return finish(&call, NVML_SUCCESS);
}
