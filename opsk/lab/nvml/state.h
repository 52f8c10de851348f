/* What does the state file say? An immutable snapshot of it, shared by all threads, found anew when the file changes. */
#ifndef OPSK_NVML_STATE_H
#define OPSK_NVML_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

#define STATE_VARIABLE "OPSK_NVML_STATE"
#define MAX_KEY 96

struct snapshot;

/* An event of the queue, in the order of its number. */
struct queued_event {
    unsigned long long number, type, data;
    unsigned int gpu, gpu_instance, compute_instance;
};

/* The newest sound snapshot; NULL only when no state file could ever be read. Give it back with state_release. */
struct snapshot *state_acquire(void);
struct snapshot *state_keep(struct snapshot *snapshot);
void state_release(struct snapshot *snapshot);

/* The text of a key, or NULL. It lives as long as the snapshot. */
const char *state_text(const struct snapshot *snapshot, const char *key);

/* Numbers of a key. NVML_ERROR_NOT_SUPPORTED: no such key. A value "!NO_PERMISSION" is that error. UNKNOWN: no number.
 * A key with a neighbour "<key>.rate" grows by that much a second from "since" on. */
nvmlReturn_t state_unsigned(const struct snapshot *snapshot, const char *key, unsigned long long *value);
nvmlReturn_t state_signed(const struct snapshot *snapshot, const char *key, long long *value);
nvmlReturn_t state_real(const struct snapshot *snapshot, const char *key, double *value);

/* The stand-in's clock: "now", else the machine's. */
double state_now_s(const struct snapshot *snapshot);

const struct queued_event *state_events(const struct snapshot *snapshot, size_t *count);

/* An error by its name or number; false when the word is neither. */
bool error_named(const char *word, nvmlReturn_t *error);
const char *error_text(nvmlReturn_t error);

#endif
