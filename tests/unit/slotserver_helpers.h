/* What the tests of the stand-in's behaviour share. */
#ifndef SLOTSERVER_HELPERS_H
#define SLOTSERVER_HELPERS_H

#include "tests/lib/client.h"
#include "tests/lib/slotserver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STREAM "{\"prompt\":\"a\",\"stream\":true}"
#define WHOLE  "{\"prompt\":\"a\"}"
#define SHORT  "{\"prompt\":\"a\",\"n_predict\":2}"
#define PINNED "{\"prompt\":\"a\",\"stream\":true,\"id_slot\":%d}"

static inline struct slotserver_options options_of(const char *version, unsigned slots)
{
    struct slotserver_options options;
    slotserver_defaults(&options);
    options.version = version;
    options.slots = slots;
    options.metrics = true;
    options.tps = 200;
    options.prefill_tps = 100000;
    options.http_threads = 100; /* the pool has a test of its own */
    return options;
}

static inline struct slotserver *start(const struct slotserver_options *options)
{
    struct slotserver *server = slotserver_start(options);
    assert_non_null(server);
    return server;
}

static inline struct slotserver_stats stats_of(struct slotserver *server)
{
    struct slotserver_stats stats;
    slotserver_stats(server, &stats);
    return stats;
}

/* Milliseconds until so many tasks are in slots; -1 if that did not come in time. */
static inline int64_t until_in_slots(struct slotserver *server, unsigned n, int64_t within_ms)
{
    int64_t begun = client_now_ms();
    while (client_now_ms() - begun < within_ms) {
        if (stats_of(server).in_slots == n)
            return client_now_ms() - begun;
        client_pause_ms(2);
    }
    return -1;
}

static inline void wait_in_slots(struct slotserver *server, unsigned n)
{
    assert_true(until_in_slots(server, n, 5000) >= 0);
}

static inline void wait_tasks(struct slotserver *server, unsigned long n)
{
    int64_t deadline = client_now_ms() + 5000;
    while (stats_of(server).tasks < n && client_now_ms() < deadline)
        client_pause_ms(1);
    assert_int_equal(stats_of(server).tasks, n);
}

static inline long metric(struct slotserver *server, const char *name)
{
    char line[96];
    snprintf(line, sizeof(line), "\nllamacpp:%s ", name);
    struct answer answer = client_get(slotserver_port(server), "/metrics");
    assert_int_equal(answer.status, 200);
    char *found = strstr(answer.body, line);
    assert_non_null(found);
    long value = atol(found + strlen(line));
    client_done(&answer);
    return value;
}

static inline void expect_load(struct slotserver *server, long processing, long deferred)
{
    int64_t deadline = client_now_ms() + 5000;
    while (client_now_ms() < deadline && (metric(server, "requests_processing") != processing ||
                                          metric(server, "requests_deferred") != deferred))
        client_pause_ms(2);
    assert_int_equal(metric(server, "requests_processing"), processing);
    assert_int_equal(metric(server, "requests_deferred"), deferred);
}

static inline long status_within(unsigned port, const char *path, long ms)
{
    struct answer answer = client_ask(port, path, NULL, NULL, ms);
    long status = answer.status;
    client_done(&answer);
    return status;
}

#endif
