/* How is the state file read? See README.md for its form; what is no sound line is passed over, never guessed at. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

#define MAX_FILE_BYTES (4u << 20)

struct entry {
    const char *key, *value;
    size_t line;
};

struct snapshot {
    unsigned int holders; /* under `lock` */
    int file;             /* kept open: as long as it is, no other file gets its inode number */
    struct stat status;
    char *text;
    struct entry *entries;
    size_t entry_count;
    struct queued_event *events;
    size_t event_count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct snapshot *current; /* under `lock`; holds one share of the snapshot */

static bool key_sign(char sign) {
    return (sign >= 'a' && sign <= 'z') || (sign >= 'A' && sign <= 'Z') || (sign >= '0' && sign <= '9') ||
           sign == '.' || sign == '_' || sign == '-';
}

static bool blank(char sign) {
    return sign == ' ' || sign == '\t' || sign == '\r';
}

/* Take one line apart in place: true when it is "key = value" in printable signs or UTF-8. */
static bool parse_line(char *line, size_t length, struct entry *entry) {
    for (size_t at = 0; at < length; at++)
        if ((unsigned char)line[at] < 0x20 && !blank(line[at]))
            return false;
    char *end = line + length;
    while (line < end && blank(*line))
        line++;
    char *key = line;
    while (line < end && key_sign(*line))
        line++;
    size_t key_length = (size_t)(line - key);
    if (key_length == 0 || key_length >= MAX_KEY)
        return false;
    char *key_end = line;
    while (line < end && blank(*line))
        line++;
    if (line == end || *line != '=')
        return false;
    line++;
    while (line < end && blank(*line))
        line++;
    while (end > line && blank(end[-1]))
        end--;
    *key_end = '\0';
    *end = '\0';
    entry->key = key;
    entry->value = line;
    return true;
}

static int by_key(const void *left, const void *right) {
    const struct entry *one = left, *other = right;
    int order = strcmp(one->key, other->key);
    return order != 0 ? order : (one->line > other->line) - (one->line < other->line);
}

/* Keys sorted for the search, each once: the last line that names a key counts. A last line without an end is torn. */
static bool parse(struct snapshot *snapshot, size_t length) {
    size_t lines = 0;
    for (size_t at = 0; at < length; at++)
        lines += snapshot->text[at] == '\n';
    snapshot->entries = calloc(lines + 1, sizeof *snapshot->entries);
    if (snapshot->entries == NULL)
        return false;
    char *line = snapshot->text;
    size_t count = 0;
    for (size_t number = 0; number < lines; number++) {
        char *end = memchr(line, '\n', length - (size_t)(line - snapshot->text));
        struct entry *entry = &snapshot->entries[count];
        entry->line = number;
        if (*line != '#' && parse_line(line, (size_t)(end - line), entry))
            count++;
        line = end + 1;
    }
    qsort(snapshot->entries, count, sizeof *snapshot->entries, by_key);
    size_t kept = 0;
    for (size_t at = 0; at < count; at++) {
        if (kept > 0 && strcmp(snapshot->entries[kept - 1].key, snapshot->entries[at].key) == 0)
            kept--;
        snapshot->entries[kept++] = snapshot->entries[at];
    }
    snapshot->entry_count = kept;
    return true;
}

static const struct {
    const char *name;
    unsigned long long type;
} event_types[] = {
    {"sbe", 0x1},          {"dbe", 0x2},          {"pstate", 0x4},        {"xid", 0x8},
    {"clock", 0x10},       {"power_source", 0x80}, {"mig", 0x100},         {"sbe_storm", 0x200},
    {"retirement", 0x400}, {"retirement_failure", 0x800}, {"poison", 0x1000}, {"fatal_poison", 0x2000},
    {"unavailable", 0x4000}, {"recovery", 0x8000},
};

/* "event.7 = xid 0 79": a kind, a GPU, a datum, and, of a MIG device, its GPU and compute instance. */
static bool parse_event(const struct entry *entry, struct queued_event *event) {
    char kind[32], *end;
    memset(event, 0, sizeof *event);
    event->gpu_instance = event->compute_instance = NVML_NONE_ID;
    event->number = strtoull(entry->key + strlen("event."), &end, 10);
    if (*end != '\0' ||
        sscanf(entry->value, "%31s %u %llu %u %u", kind, &event->gpu, &event->data, &event->gpu_instance,
               &event->compute_instance) < 2)
        return false;
    for (size_t at = 0; at < sizeof event_types / sizeof *event_types; at++) {
        if (strcmp(kind, event_types[at].name) == 0) {
            event->type = event_types[at].type;
            return true;
        }
    }
    return false;
}

static int by_number(const void *left, const void *right) {
    const struct queued_event *one = left, *other = right;
    return (one->number > other->number) - (one->number < other->number);
}

static bool gather_events(struct snapshot *snapshot) {
    snapshot->events = calloc(snapshot->entry_count + 1, sizeof *snapshot->events);
    if (snapshot->events == NULL)
        return false;
    for (size_t at = 0; at < snapshot->entry_count; at++)
        if (strncmp(snapshot->entries[at].key, "event.", strlen("event.")) == 0 &&
            parse_event(&snapshot->entries[at], &snapshot->events[snapshot->event_count]))
            snapshot->event_count++;
    qsort(snapshot->events, snapshot->event_count, sizeof *snapshot->events, by_number);
    return true;
}

static void discard(struct snapshot *snapshot) {
    if (snapshot == NULL)
        return;
    if (snapshot->file >= 0)
        close(snapshot->file);
    free(snapshot->text);
    free(snapshot->entries);
    free(snapshot->events);
    free(snapshot);
}

/* The bytes of a file, at most one more than allowed. */
static ssize_t read_all(int file, char *text, size_t room) {
    size_t length = 0;
    while (length < room) {
        ssize_t got = pread(file, text + length, room - length, (off_t)length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        length += (size_t)got;
    }
    return (ssize_t)length;
}

static struct snapshot *load(const char *path) {
    struct snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (snapshot == NULL)
        return NULL;
    snapshot->holders = 1;
    snapshot->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (snapshot->file < 0 || fstat(snapshot->file, &snapshot->status) != 0 || !S_ISREG(snapshot->status.st_mode) ||
        snapshot->status.st_size > (off_t)MAX_FILE_BYTES)
        goto broken;
    size_t room = (size_t)snapshot->status.st_size + 1;
    snapshot->text = malloc(room + 1);
    if (snapshot->text == NULL)
        goto broken;
    ssize_t length = read_all(snapshot->file, snapshot->text, room);
    if (length < 0)
        goto broken;
    snapshot->text[length] = '\0';
    if (parse(snapshot, (size_t)length) && gather_events(snapshot))
        return snapshot;
broken:
    discard(snapshot);
    return NULL;
}

static bool same_file(const struct stat *one, const struct stat *other) {
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino && one->st_size == other->st_size &&
           one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

static void drop_share(struct snapshot *snapshot) {
    if (snapshot != NULL && --snapshot->holders == 0)
        discard(snapshot);
}

struct snapshot *state_acquire(void) {
    const char *path = getenv(STATE_VARIABLE);
    struct stat status;
    pthread_mutex_lock(&lock);
    if (path != NULL && stat(path, &status) == 0 && (current == NULL || !same_file(&status, &current->status))) {
        struct snapshot *fresh = load(path);
        if (fresh != NULL) {
            drop_share(current);
            current = fresh;
        }
    }
    struct snapshot *snapshot = current;
    if (snapshot != NULL)
        snapshot->holders++;
    pthread_mutex_unlock(&lock);
    return snapshot;
}

struct snapshot *state_keep(struct snapshot *snapshot) {
    pthread_mutex_lock(&lock);
    snapshot->holders++;
    pthread_mutex_unlock(&lock);
    return snapshot;
}

void state_release(struct snapshot *snapshot) {
    pthread_mutex_lock(&lock);
    drop_share(snapshot);
    pthread_mutex_unlock(&lock);
}

const struct queued_event *state_events(const struct snapshot *snapshot, size_t *count) {
    *count = snapshot->event_count;
    return snapshot->events;
}

const char *state_text(const struct snapshot *snapshot, const char *key) {
    size_t low = 0, high = snapshot->entry_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(key, snapshot->entries[middle].key);
        if (order == 0)
            return snapshot->entries[middle].value;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

double state_now_s(const struct snapshot *snapshot) {
    double now_s;
    if (state_real(snapshot, "now", &now_s) == NVML_SUCCESS)
        return now_s;
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Since when do rates run? From "since"; from 0 of a clock that the file sets; else from when the file was written. */
static double since_s(const struct snapshot *snapshot) {
    double since_s;
    if (state_real(snapshot, "since", &since_s) == NVML_SUCCESS)
        return since_s;
    if (state_text(snapshot, "now") != NULL)
        return 0.0;
    return (double)snapshot->status.st_mtim.tv_sec + 1e-9 * (double)snapshot->status.st_mtim.tv_nsec;
}

static nvmlReturn_t value_of(const struct snapshot *snapshot, const char *key, const char **text) {
    nvmlReturn_t error;
    *text = state_text(snapshot, key);
    if (*text == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    if (**text == '!')
        return error_named(*text + 1, &error) && error != NVML_SUCCESS ? error : NVML_ERROR_UNKNOWN;
    return **text == '\0' ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

nvmlReturn_t state_real(const struct snapshot *snapshot, const char *key, double *value) {
    const char *text;
    char *end;
    nvmlReturn_t result = value_of(snapshot, key, &text);
    if (result != NVML_SUCCESS)
        return result;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value) ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

/* Decimal, or hexadecimal with 0x; a leading 0 makes no octal. */
static int base_of(const char *text) {
    const char *digits = text + (*text == '-');
    return digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X') ? 16 : 10;
}

nvmlReturn_t state_signed(const struct snapshot *snapshot, const char *key, long long *value) {
    const char *text;
    char *end;
    nvmlReturn_t result = value_of(snapshot, key, &text);
    if (result != NVML_SUCCESS)
        return result;
    errno = 0;
    *value = strtoll(text, &end, base_of(text));
    return end != text && *end == '\0' && errno == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

static double grown(const struct snapshot *snapshot, const char *key) {
    char rate_key[MAX_KEY + 8];
    double rate_per_s;
    snprintf(rate_key, sizeof rate_key, "%s.rate", key);
    if (state_real(snapshot, rate_key, &rate_per_s) != NVML_SUCCESS)
        return 0.0;
    return rate_per_s * (state_now_s(snapshot) - since_s(snapshot));
}

nvmlReturn_t state_unsigned(const struct snapshot *snapshot, const char *key, unsigned long long *value) {
    const char *text;
    char *end;
    nvmlReturn_t result = value_of(snapshot, key, &text);
    if (result != NVML_SUCCESS)
        return result;
    errno = 0;
    unsigned long long base = strtoull(text, &end, base_of(text));
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0)
        return NVML_ERROR_UNKNOWN;
    double growth = grown(snapshot, key);
    if (growth >= 1.8e19 || growth <= -1.8e19)
        return NVML_ERROR_UNKNOWN;
    unsigned long long change = (unsigned long long)fabs(growth);
    if (growth < 0)
        *value = change > base ? 0 : base - change;
    else
        *value = base + change; /* wraps as a counter of 64 bits does */
    return NVML_SUCCESS;
}
