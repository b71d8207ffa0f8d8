/* The machine, the table, and the same as JSON. */
#define _GNU_SOURCE

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tools/bench/bench.h"

/* ---- the machine ---------------------------------------------------------------------------- */

static const char *file_system_name(long type)
{
    switch (type) {
    case 0x01021994: return "tmpfs";
    case 0xef53: return "ext4";
    case 0x58465342: return "xfs";
    case 0x9123683e: return "btrfs";
    case 0x794c7630: return "overlay";
    case 0x2fc12fc1: return "zfs";
    default: return NULL;
    }
}

static void find_cpu(char *text, size_t size)
{
    char line[256];
    snprintf(text, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value)
            continue;
        value[strcspn(value, "\n")] = '\0';
        snprintf(text, size, "%s", value + 2);
        break;
    }
    if (file)
        fclose(file);
}

void facts_find(const char *directory, struct facts *facts)
{
    struct utsname machine;
    struct statfs volume;
    memset(facts, 0, sizeof *facts);
    facts->cores = sysconf(_SC_NPROCESSORS_ONLN);
    find_cpu(facts->cpu, sizeof facts->cpu);
    if (uname(&machine) == 0)
        snprintf(facts->kernel, sizeof facts->kernel, "%s %.60s", machine.sysname, machine.release);
    const char *name = statfs(directory, &volume) == 0 ? file_system_name(volume.f_type) : "?";
    if (name)
        snprintf(facts->file_system, sizeof facts->file_system, "%s", name);
    else
        snprintf(facts->file_system, sizeof facts->file_system, "0x%lx", (long)volume.f_type);
}

/* ---- the table ------------------------------------------------------------------------------ */

/* The row of plain acquire+release at as many processes: what the others are compared with. */
static const struct row *ours(const struct report *report, uint32_t processes)
{
    for (uint32_t i = 0; i < report->row_count; i++)
        if (report->rows[i].subject == &subject_pair && report->rows[i].processes == processes)
            return &report->rows[i];
    return NULL;
}

static void print_row(const struct report *report, const struct row *row)
{
    const struct row *own = ours(report, row->processes);
    printf("  %-24s %-23s %9.2f %10.2f %11.0f", row->subject->name, row->subject->what,
           row->median.p50_ns / 1e3, row->median.p99_ns / 1e3, row->median.ops);
    if (own && own->median.p50_ns > 0 && own->median.ops > 0)
        printf(" %8.2f %8.2f", row->median.p50_ns / own->median.p50_ns,
               row->median.ops / own->median.ops);
    if (row->median.failed)
        printf("  %llu failed", (unsigned long long)row->median.failed);
    printf("\n");
}

static void print_spawned(const struct spawned *spawned)
{
    if (!spawned->ok) {
        printf("\nlease run was not measured\n");
        return;
    }
    printf("\n`true`: %.2f ms; under `lease run`, no agent: +%.2f ms", spawned->plain_ms,
           spawned->alone_ms - spawned->plain_ms);
    if (spawned->has_agent)
        printf("; agent runs: +%.2f ms", spawned->agent_ms - spawned->plain_ms);
    printf(" (medians of %u each, in turn)\n", spawned->count);
}

void report_table(const struct report *report)
{
    const struct facts *facts = &report->facts;
    printf("leasehold %s on %s, %ld cores, %s, %s (%s)\n", LEASEHOLD_VERSION, facts->cpu,
           facts->cores, facts->kernel, report->directory, facts->file_system);
    printf("medians of %u rounds of %u ms; times in us; ratios to leasehold's acquire+release with "
           "as many processes\n",
           report->rounds, report->ms);
    printf("no lock: one more process changes the book 1,000 times a second meanwhile\n");
    uint32_t processes = 0;
    for (uint32_t i = 0; i < report->row_count; i++) {
        if (report->rows[i].processes != processes) {
            processes = report->rows[i].processes;
            printf("\n%u process%s\n  %-24s %-23s %9s %10s %11s %8s %8s\n", processes,
                   processes == 1 ? "" : "es", "", "operation", "p50", "p99", "ops/s", "x p50",
                   "x ops/s");
        }
        print_row(report, &report->rows[i]);
    }
    print_spawned(report->spawned);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *row_json(const struct report *report, const struct row *row)
{
    const struct row *own = ours(report, row->processes);
    bool known = own && own->median.p50_ns > 0 && own->median.ops > 0;
    json_t *object = json_pack(
        "{s:s,s:s,s:I,s:f,s:f,s:f,s:f,s:f,s:I}", "subject", row->subject->name, "operation",
        row->subject->what, "processes", (json_int_t)row->processes, "p50_ns", row->median.p50_ns,
        "p50_ns_least", row->p50_least_ns, "p50_ns_most", row->p50_most_ns, "p99_ns",
        row->median.p99_ns, "ops_per_s", row->median.ops, "failed", (json_int_t)row->median.failed);
    json_object_set_new(object, "p50_ratio",
                        known ? json_real(row->median.p50_ns / own->median.p50_ns) : json_null());
    json_object_set_new(object, "ops_ratio",
                        known ? json_real(row->median.ops / own->median.ops) : json_null());
    return object;
}

static json_t *spawned_json(const struct spawned *spawned)
{
    if (!spawned->ok)
        return json_null();
    json_t *object = json_pack("{s:I,s:f,s:f}", "count", (json_int_t)spawned->count, "plain_ms",
                               spawned->plain_ms, "without_agent_ms", spawned->alone_ms);
    json_object_set_new(object, "with_agent_ms",
                        spawned->has_agent ? json_real(spawned->agent_ms) : json_null());
    return object;
}

bool report_json(const struct report *report)
{
    const struct facts *facts = &report->facts;
    json_t *root =
        json_pack("{s:i,s:s,s:s,s:I,s:s,s:s,s:s,s:I,s:I}", "schema", 1, "version",
                  LEASEHOLD_VERSION, "cpu", facts->cpu, "cores", (json_int_t)facts->cores, "kernel",
                  facts->kernel, "directory", report->directory, "file_system", facts->file_system,
                  "rounds", (json_int_t)report->rounds, "round_ms", (json_int_t)report->ms);
    json_t *rows = json_array();
    for (uint32_t i = 0; i < report->row_count; i++)
        json_array_append_new(rows, row_json(report, &report->rows[i]));
    json_object_set_new(root, "rows", rows);
    json_object_set_new(root, "lease_run", spawned_json(report->spawned));
    bool ok = json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0;
    printf("\n");
    json_decref(root);
    return ok;
}
