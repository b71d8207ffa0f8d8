/* The tables, and the same as JSON. */
#define _GNU_SOURCE

#include <stdio.h>

#include "tools/bench/fleet.h"

/* ---- ways to ask ------------------------------------------------------------------------------ */

static double ratio(double value, double to)
{
    return to > 0 ? value / to : 0;
}

static void print_times(const struct fleet_way *way, const struct fleet_times *times,
                        const struct fleet_times *bare)
{
    printf("  %-18s %-15s %8u %9.1f %9.1f %9.1f %8.2f %8.2f", way->name, way->what, times->count,
           times->p50_us, times->p99_us, times->p999_us, ratio(times->p50_us, bare->p50_us),
           ratio(times->p99_us, bare->p99_us));
    if (times->failed)
        printf("  %u failed", times->failed);
    printf("\n");
}

static void print_head(void)
{
    printf("  %-18s %-15s %8s %9s %9s %9s %8s %8s\n", "", "", "n", "p50", "p99", "p99.9", "x p50",
           "x p99");
}

void fleet_print_ways(const struct fleet_settings *settings, const struct fleet_row *rows,
                      uint32_t count)
{
    printf("asking, on loopback, in turns; microseconds; ratios to the first\n");
    printf("\npaced, %u a second of each\n", settings->a_second);
    print_head();
    for (uint32_t i = 0; i < count; i++)
        print_times(rows[i].way, &rows[i].paced, &rows[0].paced);
    printf("\nflat out\n");
    print_head();
    for (uint32_t i = 0; i < count; i++)
        print_times(rows[i].way, &rows[i].flat_out, &rows[0].flat_out);
}

static json_t *times_json(const struct fleet_times *times, const struct fleet_times *bare)
{
    return json_pack("{s:I,s:I,s:f,s:f,s:f,s:f,s:f}", "count", (json_int_t)times->count, "failed",
                     (json_int_t)times->failed, "p50_us", times->p50_us, "p99_us", times->p99_us,
                     "p999_us", times->p999_us, "p50_ratio", ratio(times->p50_us, bare->p50_us),
                     "p99_ratio", ratio(times->p99_us, bare->p99_us));
}

json_t *fleet_ways_json(const struct fleet_row *rows, uint32_t count)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(all, json_pack("{s:s,s:s,s:o,s:o}", "subject", rows[i].way->name,
                                             "operation", rows[i].way->what, "paced",
                                             times_json(&rows[i].paced, &rows[0].paced), "flat_out",
                                             times_json(&rows[i].flat_out, &rows[0].flat_out)));
    return all;
}

/* ---- crowds ----------------------------------------------------------------------------------- */

static void print_joining(const struct fleet_crowd *crowds, uint32_t count)
{
    printf("\n%6s %5s %8s %9s | %9s %9s %9s %9s %8s | %8s %8s %6s\n", "agents", "loss", "join s",
           "join cpu", "each p50", "each p99", "all p50", "all p99", "unheard", "RSS MB", "PSS MB",
           "load");
    for (uint32_t i = 0; i < count; i++) {
        const struct fleet_crowd *crowd = &crowds[i];
        printf("%6u %4u%% %8.1f %8.2fs | %9.1f %9.1f %9.1f %9.1f %8u | %8.1f %8.1f %6.1f%s\n",
               crowd->settings.agents, crowd->settings.loss_percent, crowd->join_s,
               crowd->join_cpu_s, crowd->change_p50_ms, crowd->change_p99_ms, crowd->all_p50_ms,
               crowd->all_p99_ms, crowd->unheard, crowd->rss_mb, crowd->pss_mb, crowd->load,
               crowd->ok ? "" : "  failed");
    }
}

static void print_cost(const struct fleet_crowd *crowds, uint32_t count)
{
    printf("\n%6s %5s | %8s %8s %8s %9s %9s %7s | %8s %8s %9s %9s %7s\n", "agents", "loss",
           "idle cpu", "most", "owner", "bytes/s", "packets/s", "said/s", "churn", "owner",
           "bytes/s", "packets/s", "said/s");
    for (uint32_t i = 0; i < count; i++) {
        const struct fleet_crowd *crowd = &crowds[i];
        printf("%6u %4u%% | %7.2f%% %7.2f%% %7.2f%% %9.0f %9.1f %7.1f | %7.2f%% %7.2f%% %9.0f "
               "%9.1f %7.1f%s\n",
               crowd->settings.agents, crowd->settings.loss_percent, crowd->idle_cpu,
               crowd->idle_cpu_most, crowd->idle_cpu_owner, crowd->idle_bytes, crowd->idle_packets,
               crowd->idle_said, crowd->churn_cpu, crowd->churn_cpu_owner, crowd->churn_bytes,
               crowd->churn_packets, crowd->churn_said_owner,
               crowd->own_network ? "" : "  traffic of all that use loopback");
        if (crowd->settings.relay)
            printf("%13s | %7.2f%% of a core %44s | %7.2f%%\n", "the relay", crowd->relay_idle_cpu,
                   "", crowd->relay_churn_cpu);
    }
}

void fleet_print_crowds(const struct fleet_crowd *crowds, uint32_t count)
{
    if (count == 0)
        return;
    printf(
        "\ncrowds: processes of their own on this machine, in a mesh, or with one relay (--relay); "
        "those that lose\nmessages hear each other through a switch, which drops them for each "
        "receiver by itself\n"
        "join: from the start of the first until each has heard all others and has the owner's "
        "book (files\nare looked at, which are written once a second); each, all: ms from acquire "
        "or release at the\nowner until one agent's copy of the book has it, and the last one's; "
        "cpu: percent of a core\n");
    print_joining(crowds, count);
    printf("\na host: what it sends, by the counters of loopback, with all acknowledgements; "
           "churn: 20 "
           "changes a\nsecond; said: messages that the owner publishes\n");
    print_cost(crowds, count);
}

json_t *fleet_crowds_json(const struct fleet_crowd *crowds, uint32_t count)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < count; i++) {
        const struct fleet_crowd *c = &crowds[i];
        json_t *one = json_pack(
            "{s:I,s:I,s:b,s:b,s:b,s:f,s:f,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "agents",
            (json_int_t)c->settings.agents, "loss_percent", (json_int_t)c->settings.loss_percent,
            "relay", c->settings.relay, "ok", c->ok, "own_network", c->own_network, "join_s",
            c->join_s, "join_cpu_s", c->join_cpu_s, "unheard", (json_int_t)c->unheard,
            "change_p50_ms", c->change_p50_ms, "change_p99_ms", c->change_p99_ms, "all_p50_ms",
            c->all_p50_ms, "all_p99_ms", c->all_p99_ms, "rss_mb", c->rss_mb, "rss_mb_most",
            c->rss_mb_most, "pss_mb", c->pss_mb, "load", c->load);
        json_t *idle =
            json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "cpu_percent", c->idle_cpu,
                      "cpu_percent_most", c->idle_cpu_most, "cpu_percent_owner", c->idle_cpu_owner,
                      "bytes_per_s", c->idle_bytes, "packets_per_s", c->idle_packets,
                      "owner_messages_per_s", c->idle_said, "relay_cpu_percent", c->relay_idle_cpu);
        json_t *churn = json_pack(
            "{s:f,s:f,s:f,s:f,s:f,s:f}", "cpu_percent", c->churn_cpu, "cpu_percent_owner",
            c->churn_cpu_owner, "bytes_per_s", c->churn_bytes, "packets_per_s", c->churn_packets,
            "owner_messages_per_s", c->churn_said_owner, "relay_cpu_percent", c->relay_churn_cpu);
        json_object_set_new(one, "idle", idle);
        json_object_set_new(one, "churn", churn);
        json_array_append_new(all, one);
    }
    return all;
}
