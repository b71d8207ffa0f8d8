/* What others than peers say to a speaker: the daemon, of whom it has noticed; people, of whom to forget. */
#define _GNU_SOURCE
#include "agent/speaker_outside.h"

#include <string.h>

#include "agent/asker.h"
#include "agent/client.h"
#include "agent/lease.h"
#include "broker/host_clock.h"
#include "tests/lib/check.h"
#include "tests/lib/temp_dir.h"

#define ASK_MS 5000

struct host {
    char directory[TEMP_DIR_MAX];
    lease_agent_t *agent;
    struct speaker_place place;
};

static struct host z4, m5;

static void open_host(struct host *host, const char *name)
{
    const char *listen = "tcp://127.0.0.1:0";
    struct lease_options options = {.size = sizeof options,
                                    .directory = host->directory,
                                    .host = name,
                                    .listen = &listen,
                                    .listen_count = 1,
                                    .flags = LEASE_OPEN_DAEMON};
    assert_true(temp_dir_make(host->directory));
    assert_int_equal(lease_agent_open(&options, &host->agent, NULL, 0), 0);
    speaker_where(host->agent, &host->place);
    assert_true(host->place.endpoint[0] && !host->place.trouble[0]);
}

static int begin(void **state)
{
    (void)state;
    open_host(&z4, "z4");
    open_host(&m5, "m5");
    return 0;
}

static int end(void **state)
{
    (void)state;
    lease_agent_close(&z4.agent);
    lease_agent_close(&m5.agent);
    temp_dir_remove(z4.directory);
    temp_dir_remove(m5.directory);
    return 0;
}

/* How many peers it knows by this name and hears. */
static uint32_t count_live(const struct host *host, const char *name)
{
    struct routes *routes = NULL;
    uint32_t count = 0;
    if (routes_read(host->directory, &routes) < 0)
        return 0;
    for (uint32_t i = 0; i < routes->peer_count; i++)
        count += strcmp(routes->peers[i].name, name) == 0 &&
                 strcmp(route_peer_state_name(&routes->peers[i], host_now_ns()), "live") == 0;
    routes_free(&routes);
    return count;
}

static bool has_met(void *arg)
{
    (void)arg;
    return count_live(&z4, "m5") == 1 && count_live(&m5, "z4") == 1;
}

static bool is_alone(void *arg)
{
    return count_live(arg, "m5") == 0;
}

static int forget(const struct host *host, const char *name)
{
    static struct message request, reply;
    static const uint8_t drawn_there[WIRE_ID_BYTES];
    message_request(&request, MESSAGE_FORGET, drawn_there);
    snprintf(request.name, sizeof request.name, "%s", name);
    assert_int_equal(client_ask(host->directory, &request, &reply, ASK_MS), 0);
    return reply.ok ? 0 : reply.error;
}

static int forget_by_tcp(const struct host *host, const char *name)
{
    static struct message request, reply;
    static const uint8_t drawn_there[WIRE_ID_BYTES];
    struct asker *asker = NULL;
    struct ask ask = {0};
    message_request(&request, MESSAGE_FORGET, drawn_there);
    snprintf(request.name, sizeof request.name, "%s", name);
    assert_int_equal(asker_open(&asker), 0);
    int rc = ask_once(asker, host->place.endpoint, &request, &reply,
                      host_now_ns() + ASK_MS * NS_PER_MS, &ask);
    assert_int_equal(rc, 0);
    int error = reply.ok ? 0 : reply.error;
    ask_free(&ask);
    asker_close(&asker);
    return error;
}

/* Told twice it is still one, and our own word come back is nobody. */
static void who_was_noticed_is_asked(void **state)
{
    (void)state;
    assert_int_equal(count_live(&z4, "m5"), 0);
    assert_int_equal(speaker_tell_peer(z4.agent, z4.place.id, z4.place.endpoint), 0);
    assert_int_equal(speaker_tell_peer(z4.agent, m5.place.id, m5.place.endpoint), 0);
    assert_int_equal(speaker_tell_peer(z4.agent, m5.place.id, m5.place.endpoint), 0);
    assert_true(eventually(has_met, NULL));
    assert_int_equal(count_live(&z4, "z4"), 0);
}

static void what_is_no_address_is_refused(void **state)
{
    (void)state;
    assert_int_equal(speaker_tell_peer(z4.agent, m5.place.id, "nonsense"), LEASE_EINVAL);
    assert_int_equal(speaker_tell_peer(z4.agent, m5.place.id, "tcp://name.example:1"),
                     LEASE_EINVAL);
}

static void a_peer_is_forgotten_by_the_hosts_own_people(void **state)
{
    (void)state;
    assert_true(eventually(has_met, NULL));
    assert_int_equal(forget(&z4, "nobody"), LEASE_EUNKNOWN);
    assert_int_equal(forget_by_tcp(&z4, "m5"), LEASE_EPERM);
    assert_int_equal(count_live(&z4, "m5"), 1);
    lease_agent_close(&m5.agent);
    assert_int_equal(forget(&z4, "m5"), 0);
    assert_true(eventually(is_alone, &z4));
    assert_int_equal(forget(&z4, "m5"), LEASE_EUNKNOWN);
}

static void who_does_not_speak_takes_nobody(void **state)
{
    (void)state;
    lease_agent_t *agent = NULL;
    struct lease_options options = {
        .size = sizeof options, .directory = z4.directory, .flags = LEASE_OPEN_CLIENT};
    struct speaker_place place;
    assert_int_equal(lease_agent_open(&options, &agent, NULL, 0), 0);
    assert_int_equal(speaker_tell_peer(agent, z4.place.id, z4.place.endpoint), LEASE_EABSENT);
    speaker_where(agent, &place);
    assert_string_equal(place.endpoint, "");
    lease_agent_close(&agent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_noticed_is_asked),
        cmocka_unit_test(what_is_no_address_is_refused),
        cmocka_unit_test(who_does_not_speak_takes_nobody),
        cmocka_unit_test(a_peer_is_forgotten_by_the_hosts_own_people),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
