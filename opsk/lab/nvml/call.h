/* What does every call go through? Init, faults of the state file (hang, error, lost GPU), and whose keys it reads. */
#ifndef OPSK_NVML_CALL_H
#define OPSK_NVML_CALL_H

#include "state.h"

#define MAX_GPUS 64
#define MAX_MIG 16
#define MAX_LINKS 36
#define WHOLE_GPU (-1)

/* Handles are addresses in fixed tables: a wrong one is told from a right one without looking behind it. */
struct device_handle {
    unsigned char unused;
};

struct call {
    struct snapshot *state;
    const char *function;
    int gpu;
    int mig; /* index of a MIG device of the GPU, or WHOLE_GPU */
    bool holds_driver;
};

/* Begin a call to the library, or to one device; when it gives an error, the call is over. Else end it with `finish`. */
nvmlReturn_t begin(struct call *call, const char *function);
nvmlReturn_t begin_device(struct call *call, const char *function, nvmlDevice_t device);
nvmlReturn_t finish(struct call *call, nvmlReturn_t result);

/* Begin a call to a device in the function that it is made to; `result` is then NVML_SUCCESS. */
#define BEGIN_DEVICE(call, device)                                                                                     \
    struct call call;                                                                                                  \
    nvmlReturn_t result = begin_device(&call, __func__, device);                                                       \
    if (result != NVML_SUCCESS)                                                                                        \
        return result

/* Let a call that has found its GPU through that one's faults. */
nvmlReturn_t reach(struct call *call);

/* Let an Init through the faults; it needs none before it. */
nvmlReturn_t begin_init(struct call *call, const char *function);
nvmlReturn_t count_init(struct call *call);
nvmlReturn_t count_shutdown(struct call *call);

nvmlDevice_t handle_of(int gpu, int mig);
bool handle_known(nvmlDevice_t device, int *gpu, int *mig);
unsigned int gpu_count(const struct snapshot *state);
bool gpu_lost(const struct snapshot *state, unsigned int gpu);
/* The MIG device at an index: there is one where the mode is on and it has a UUID. */
bool mig_present(const struct snapshot *state, int gpu, int mig);

/* Keys of the call's device: "gpu.0.<key>", of a MIG device "gpu.0.mig.1.<key>". */
__attribute__((format(printf, 3, 4))) void key_of(const struct call *call, char key[MAX_KEY], const char *format, ...);
const char *own_text(const struct call *call, const char *name);
nvmlReturn_t own_unsigned(const struct call *call, const char *name, unsigned long long *value);
nvmlReturn_t own_uint(const struct call *call, const char *name, unsigned int *value);
nvmlReturn_t own_signed(const struct call *call, const char *name, long long *value);
nvmlReturn_t own_real(const struct call *call, const char *name, double *value);
unsigned int own_uint_or(const struct call *call, const char *name, unsigned int other);
unsigned long long own_unsigned_or(const struct call *call, const char *name, unsigned long long other);

/* Whole calls that give one value of the device. */
nvmlReturn_t give_uint(const char *function, nvmlDevice_t device, const char *name, unsigned int *value);
nvmlReturn_t give_unsigned(const char *function, nvmlDevice_t device, const char *name, unsigned long long *value);
nvmlReturn_t give_text(const char *function, nvmlDevice_t device, const char *name, char *text, unsigned int room);
/* Copy a text with its end; INSUFFICIENT_SIZE where it does not fit, NOT_SUPPORTED where there is none. */
nvmlReturn_t copy_text(const char *from, char *text, unsigned int room);
/* A PCI address taken apart; NOT_SUPPORTED where there is none, UNKNOWN where it is none. */
nvmlReturn_t fill_pci(const char *text, nvmlPciInfo_t *info);

#endif
