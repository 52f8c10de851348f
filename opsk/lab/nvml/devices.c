/* How many GPUs are there, how is one found, and what is it? */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "call.h"

static nvmlReturn_t count(const char *function, unsigned int *number) {
    struct call call;
    nvmlReturn_t result = begin(&call, function);
    if (result != NVML_SUCCESS)
        return result;
    if (number == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    *number = gpu_count(call.state);
    return finish(&call, NVML_SUCCESS);
}

NVML_API nvmlReturn_t nvmlDeviceGetCount(unsigned int *number) {
    return count(__func__, number);
}

NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *number) {
    return count(__func__, number);
}

/* A GPU that fell off the bus is still counted; who asks for it is told. */
static nvmlReturn_t hand_out(struct call *call, int gpu, int mig, nvmlDevice_t *device) {
    call->gpu = gpu;
    nvmlReturn_t result = reach(call);
    if (result == NVML_SUCCESS)
        *device = handle_of(gpu, mig);
    return result;
}

static nvmlReturn_t by_index(const char *function, unsigned int index, nvmlDevice_t *device) {
    struct call call;
    nvmlReturn_t result = begin(&call, function);
    if (result != NVML_SUCCESS)
        return result;
    if (device == NULL || index >= gpu_count(call.state))
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    return finish(&call, hand_out(&call, (int)index, WHOLE_GPU, device));
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return by_index(__func__, index, device);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    return by_index(__func__, index, device);
}

/* "00000000:1B:00.0", "0000:1b:00.0" and "1B:00.0" are one address. */
static bool pci_parts(const char *text, unsigned int parts[3]) {
    unsigned int function;
    parts[0] = 0;
    return text != NULL && (sscanf(text, "%8x:%2x:%2x.%1x", &parts[0], &parts[1], &parts[2], &function) == 4 ||
                            (parts[0] = 0, sscanf(text, "%2x:%2x.%1x", &parts[1], &parts[2], &function) == 3));
}

static bool same_pci(const char *one, const char *other) {
    unsigned int left[3], right[3];
    return pci_parts(one, left) && pci_parts(other, right) && memcmp(left, right, sizeof left) == 0;
}

static bool same_word(const char *one, const char *other) {
    return strcasecmp(one, other) == 0;
}

/* Find the GPU (or, where wanted, MIG device) whose text of a key is like the one given. */
static nvmlReturn_t find(const char *function, const char *name, const char *wanted, bool with_mig,
                         bool (*alike)(const char *, const char *), nvmlDevice_t *device) {
    struct call call;
    nvmlReturn_t result = begin(&call, function);
    if (result != NVML_SUCCESS)
        return result;
    if (wanted == NULL || device == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    const int gpus = (int)gpu_count(call.state);
    for (call.gpu = 0; call.gpu < gpus; call.gpu++) {
        for (call.mig = WHOLE_GPU; call.mig < (with_mig ? MAX_MIG : 0); call.mig++) {
            const char *text = own_text(&call, name);
            bool there = call.mig == WHOLE_GPU || mig_present(call.state, call.gpu, call.mig);
            if (there && text != NULL && alike(text, wanted))
                return finish(&call, hand_out(&call, call.gpu, call.mig, device));
        }
    }
    return finish(&call, NVML_ERROR_NOT_FOUND);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return find(__func__, "uuid", uuid, true, same_word, device);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_v1_t *uuid, nvmlDevice_t *device) {
    if (uuid == NULL || uuid->type != 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (uuid->version != NVML_VERSION_OF(*uuid, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    char text[sizeof uuid->value.str + 1] = "";
    memcpy(text, uuid->value.str, sizeof uuid->value.str);
    return find(__func__, "uuid", text, true, same_word, device);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    return find(__func__, "serial", serial, false, same_word, device);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
    return find(__func__, "pci.bus_id", bus_id, false, same_pci, device);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    return find(__func__, "pci.bus_id", bus_id, false, same_pci, device);
}

#define TEXT(function, name)                                                                                           \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, char *text, unsigned int length) {                             \
        return give_text(__func__, device, name, text, length);                                                       \
    }

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetBoardPartNumber, "part_number")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom.image")

NVML_API nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, unsigned int object, char *text,
                                                  unsigned int length) {
    static const char *const names[] = {"inforom.oem", "inforom.ecc", "inforom.power"};
    return object < 3 ? give_text(__func__, device, names[object], text, length) : NVML_ERROR_INVALID_ARGUMENT;
}

NVML_API nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version) {
    return give_text(__func__, device, "gsp.version", version, 64);
}

NVML_API nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *on, unsigned int *by_default) {
    nvmlReturn_t result = give_uint(__func__, device, "gsp.mode", on);
    return result == NVML_SUCCESS ? give_uint(__func__, device, "gsp.mode", by_default) : result;
}

#define UINT(function, name)                                                                                           \
    NVML_API nvmlReturn_t function(nvmlDevice_t device, unsigned int *value) {                                         \
        return give_uint(__func__, device, name, value);                                                               \
    }

UINT(nvmlDeviceGetBrand, "brand")
UINT(nvmlDeviceGetArchitecture, "architecture")
UINT(nvmlDeviceGetModuleId, "module_id")
UINT(nvmlDeviceGetBoardId, "board_id")
UINT(nvmlDeviceGetMultiGpuBoard, "multi_gpu_board")
UINT(nvmlDeviceGetInforomConfigurationChecksum, "inforom.checksum")
UINT(nvmlDeviceGetPersistenceMode, "persistence_mode")
UINT(nvmlDeviceGetComputeMode, "compute_mode")
UINT(nvmlDeviceGetDisplayMode, "display_mode")
UINT(nvmlDeviceGetDisplayActive, "display_active")
UINT(nvmlDeviceGetVirtualizationMode, "virtualization_mode")
UINT(nvmlDeviceGetBusType, "bus_type")
UINT(nvmlDeviceGetIrqNum, "irq")
UINT(nvmlDeviceGetNumGpuCores, "cores")
UINT(nvmlDeviceGetMemoryBusWidth, "memory.bus_width_bits")
UINT(nvmlDeviceGetNumaNodeId, "numa_node")

static nvmlReturn_t give_own_number(const char *function, nvmlDevice_t device, const char *name, unsigned int *value) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    if (value == NULL)
        return finish(&call, NVML_ERROR_INVALID_ARGUMENT);
    result = own_uint(&call, name, value);
    if (result == NVML_ERROR_NOT_SUPPORTED) {
        *value = (unsigned int)call.gpu;
        result = NVML_SUCCESS;
    }
    return finish(&call, call.mig == WHOLE_GPU ? result : NVML_ERROR_NOT_SUPPORTED);
}

NVML_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    return give_own_number(__func__, device, "index", index);
}

NVML_API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    return give_own_number(__func__, device, "minor", minor);
}

NVML_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    BEGIN_DEVICE(call, device);
    const char *text = own_text(&call, "compute_capability");
    if (text == NULL || major == NULL || minor == NULL)
        return finish(&call, text == NULL ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_INVALID_ARGUMENT);
    return finish(&call, sscanf(text, "%d.%d", major, minor) == 2 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN);
}

nvmlReturn_t fill_pci(const char *text, nvmlPciInfo_t *info) {
    unsigned int parts[3];
    if (text == NULL || !pci_parts(text, parts))
        return text == NULL ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNKNOWN;
    memset(info, 0, sizeof *info);
    info->domain = parts[0];
    info->bus = parts[1];
    info->device = parts[2];
    snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.0", parts[0], parts[1] & 0xFF, parts[2] & 0xFF);
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.0", parts[0] & 0xFFFF, parts[1] & 0xFF,
             parts[2] & 0xFF);
    return NVML_SUCCESS;
}

static nvmlReturn_t pci(const char *function, nvmlDevice_t device, nvmlPciInfo_t *info) {
    struct call call;
    nvmlReturn_t result = begin_device(&call, function, device);
    if (result != NVML_SUCCESS)
        return result;
    result = info == NULL ? NVML_ERROR_INVALID_ARGUMENT : fill_pci(own_text(&call, "pci.bus_id"), info);
    if (result == NVML_SUCCESS) {
        info->pciDeviceId = own_uint_or(&call, "pci.device_id", 0);
        info->pciSubSystemId = own_uint_or(&call, "pci.subsystem_id", 0);
    }
    return finish(&call, result);
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *info) {
    return pci(__func__, device, info);
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info) {
    return pci(__func__, device, info);
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *info) {
    nvmlPciInfo_t plain;
    if (info == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version != NVML_VERSION_OF(*info, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = pci(__func__, device, &plain);
    if (result != NVML_SUCCESS)
        return result;
    *info = (nvmlPciInfoExt_v1_t){info->version, plain.domain, plain.bus, plain.device, plain.pciDeviceId,
                                  plain.pciSubSystemId, 0x3, 0x2, ""};
    memcpy(info->busId, plain.busId, sizeof info->busId);
    return NVML_SUCCESS;
}
