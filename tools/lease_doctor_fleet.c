/* lease doctor, about other hosts: what of this host they reach, what of them is reached from here, and
 * whether all of them agree on who is who. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "agent/effective.h"
#include "agent/routes.h"
#include "broker/host_clock.h"
#include "broker/record.h"
#include "tools/lease_doctor.h"
#include "tools/lease_doctor_net.h"

#define PEERS_LOOKED_AT 32 /* further ones are counted */
#define DIAL_MS         1500
#define CLOCK_SLACK_S   60 /* two clocks that differ by less are as good as the same */

struct fleet_check {
    struct doctor *doctor;
    const struct fleet_config
        *told;                /* what the agent was told; NULL: none speaks, or it takes no part */
    struct routes *routes;    /* what it has learned, NULL the same */
    struct lease_fleet *view; /* NULL: could not be had */
    char own_id[33];
    size_t peer_count, more;
    struct dial dials[PEERS_LOOKED_AT], announcements[PEERS_LOOKED_AT];
    struct greeting greetings[PEERS_LOOKED_AT];
    char names[PEERS_LOOKED_AT][NAME_SIZE]; /* as configured, "" not */
};

/* ---- where this host listens ----------------------------------------------------------------- */

static void say_port(struct doctor *doctor, const char *trouble)
{
    char text[ENDPOINT_SIZE] = "", name[32], mend[160];
    struct endpoint endpoint;
    const char *begin = strstr(trouble, "tcp://");
    if (begin)
        snprintf(text, sizeof text, "%.*s", (int)strcspn(begin, " "), begin);
    uint32_t pid =
        endpoint_parse(text, &endpoint) ? port_holder(endpoint.port, name, sizeof name) : 0;
    if (pid)
        snprintf(mend, sizeof mend, "end process %u (%s), or take another port", pid, name);
    else if (strstr(trouble, "in use"))
        snprintf(mend, sizeof mend,
                 "take another port; another user's process has it, `ss -ltnp` tells root");
    else
        snprintf(mend, sizeof mend, "bring that address up, or listen at one that this host has");
    doctor_wrong(doctor, "listen", mend, "%s", trouble);
}

static bool is_beyond_loopback(const char *text)
{
    struct endpoint endpoint;
    return endpoint_parse(text, &endpoint) && !endpoint_is_loopback(endpoint.host);
}

static bool has_distant_peer(const struct fleet_check *check)
{
    for (size_t i = 0; i < check->peer_count; i++)
        if (is_beyond_loopback(check->dials[i].endpoint))
            return true;
    for (uint32_t i = 0; check->routes && i < check->routes->peer_count; i++)
        if (is_beyond_loopback(check->routes->peers[i].endpoint))
            return true;
    return false;
}

static bool listens_on_loopback_only(const struct fleet_config *told)
{
    for (uint32_t i = 0; i < told->listen_count; i++)
        if (is_beyond_loopback(told->listen[i]))
            return false;
    return told->listen_count > 0;
}

static void check_listening(struct fleet_check *check)
{
    struct doctor *doctor = check->doctor;
    const struct fleet_config *told = check->told;
    if (!told) {
        if (doctor->cli->config.listen.count > 0 && !doctor->has_speaker)
            doctor_wrong(doctor, "listen", "start lease-agent",
                         "the configuration says listen, but no lease-agent runs");
        return;
    }
    const char *publish = told->relay[0] ? told->relay : "nowhere";
    if (check->routes && check->routes->publish[0])
        publish = check->routes->publish;
    if (check->routes && check->routes->warning[0])
        say_port(doctor, check->routes->warning);
    else if (check->routes && check->routes->endpoint[0])
        doctor_ok(doctor, "listen", "%s, publishes at %s%s", check->routes->endpoint, publish,
                  told->insecure && !listens_on_loopback_only(told)
                      ? "; without keys: whoever gets there can take and end leases"
                      : "");
    if (told->listen_count == 0)
        doctor_wrong(
            doctor, "listen", "--listen tcp://ADDRESS:5771, or listen = in the configuration",
            "nowhere: this host only asks, others can neither lease its slots nor hear of it");
    else if (listens_on_loopback_only(told) && has_distant_peer(check))
        doctor_wrong(
            doctor, "listen",
            "--listen tcp://ADDRESS:5771 with an address of this host, and --insecure on a "
            "network whose users you trust",
            "on loopback only, though there are peers on other hosts: they do not reach it");
}

/* ---- peers ----------------------------------------------------------------------------------- */

static void add_peer(struct fleet_check *check, const char *text)
{
    struct fleet_config one = {.peer_count = 0};
    if (fleet_config_add_peer(&one, text) < 0) {
        doctor_wrong(check->doctor, "peer", "write tcp://HOST[:PORT][,name=PEER]",
                     "'%.120s' is no endpoint", text);
        return;
    }
    for (size_t i = 0; i < check->peer_count; i++)
        if (strcmp(check->dials[i].endpoint, one.peers[0].endpoint) == 0)
            return;
    if (check->peer_count == PEERS_LOOKED_AT) {
        check->more++;
        return;
    }
    memcpy(check->dials[check->peer_count].endpoint, one.peers[0].endpoint, ENDPOINT_SIZE);
    memcpy(check->names[check->peer_count++], one.peers[0].name, NAME_SIZE);
}

static void collect_peers(struct fleet_check *check)
{
    static const char *peers[PEERS_MAX];
    size_t count = cli_peers(check->doctor->cli, peers);
    for (size_t i = 0; i < count; i++)
        add_peer(check, peers[i]);
    for (uint32_t i = 0; check->told && i < check->told->peer_count; i++) {
        char text[ENDPOINT_SIZE + NAME_SIZE + 8];
        fleet_config_peer_text(&check->told->peers[i], text, sizeof text);
        add_peer(check, text);
    }
    for (uint32_t i = 0; check->routes && i < check->routes->peer_count; i++)
        if (check->routes->peers[i].endpoint[0])
            add_peer(check, check->routes->peers[i].endpoint);
}

/* Why a connection did not come about, and what to do. */
static void say_unreached(struct doctor *doctor, const char *label, const char *what, int failed,
                          const char *text)
{
    struct endpoint endpoint = {.port = 0};
    char mend[256];
    endpoint_parse(text, &endpoint);
    switch (failed) {
    case ENOENT:
        doctor_wrong(doctor, label, "correct the name, or take its address",
                     "%s%s: no address is known for that name", what, text);
        return;
    case ECONNREFUSED:
        doctor_wrong(
            doctor, label,
            "start lease-agent there, with --listen at an address that is reached from here",
            "%s%s: the host is there, and nobody listens", what, text);
        return;
    case ETIMEDOUT:
        snprintf(mend, sizeof mend,
                 "see whether that host is up; its firewall is to let in TCP port %u, and the one "
                 "after it for what is published",
                 endpoint.port);
        doctor_wrong(doctor, label, mend, "%s%s: no answer within %.1f s", what, text,
                     DIAL_MS / 1e3);
        return;
    case EHOSTUNREACH:
    case ENETUNREACH:
        doctor_wrong(
            doctor, label,
            "join that network (VPN, Wi-Fi), or correct the address; a firewall may say so too",
            "%s%s: %s", what, text,
            failed == EHOSTUNREACH ? "no way to that host" : "no way to that network");
        return;
    default:
        doctor_wrong(doctor, label, "see this host's own firewall and limits", "%s%s: %s", what,
                     text, strerror(failed));
    }
}

static void check_version(struct fleet_check *check, const char *label, const char *version)
{
    if (version[0] && strcmp(version, LEASEHOLD_VERSION) != 0)
        doctor_wrong(check->doctor, label, "install the same version on both",
                     "it is %s, this is %s", version, LEASEHOLD_VERSION);
}

static void check_greeting(struct fleet_check *check, size_t index)
{
    struct doctor *doctor = check->doctor;
    const struct greeting *greeting = &check->greetings[index];
    const char *endpoint = check->dials[index].endpoint;
    const char *label = greeting->name[0] ? greeting->name : "peer";
    for (size_t i = 0; i < index && greeting->error == 0; i++)
        if (check->dials[i].error == 0 && strcmp(check->greetings[i].id, greeting->id) == 0 &&
            !check->names[index][0])
            return; /* at another address of the same host; all was said */
    if (greeting->error < 0) {
        doctor_wrong(doctor, label,
                     "see what it is; a lease-agent that is stopped or of another wire version "
                     "answers like this",
                     "%s: somebody listens, but does not answer as a lease-agent", endpoint);
        return;
    }
    if (check->own_id[0] && strcmp(greeting->id, check->own_id) == 0) {
        doctor_ok(doctor, label, "%s is this host itself", endpoint);
        return;
    }
    if (check->names[index][0] && strcmp(check->names[index], greeting->name) != 0)
        doctor_wrong(doctor, label, "correct its name= or its address", "%s is %s and not %s",
                     endpoint, greeting->name, check->names[index]);
    else
        doctor_ok(doctor, label, "%s answers", endpoint);
    check_version(check, label, greeting->version);
}

static void check_announcements(struct fleet_check *check)
{
    size_t count = 0;
    const char *labels[PEERS_LOOKED_AT];
    for (size_t i = 0; i < check->peer_count; i++) {
        const struct greeting *greeting = &check->greetings[i];
        if (greeting->error < 0 || !greeting->publish[0] ||
            strcmp(greeting->id, check->own_id) == 0)
            continue;
        labels[count] = greeting->name;
        memcpy(check->announcements[count++].endpoint, greeting->publish, ENDPOINT_SIZE);
    }
    dial_all(check->announcements, count, DIAL_MS);
    for (size_t i = 0; i < count; i++)
        if (check->announcements[i].error != 0)
            say_unreached(check->doctor, labels[i], "what it publishes at ",
                          check->announcements[i].error, check->announcements[i].endpoint);
}

static void check_peers(struct fleet_check *check)
{
    dial_all(check->dials, check->peer_count, DIAL_MS);
    greet_all(check->dials, check->peer_count, DIAL_MS, check->greetings);
    for (size_t i = 0; i < check->peer_count; i++) {
        const struct dial *dial = &check->dials[i];
        if (dial->error != 0)
            say_unreached(check->doctor, check->names[i][0] ? check->names[i] : "peer", "",
                          dial->error, dial->endpoint);
        else
            check_greeting(check, i);
    }
    check_announcements(check);
    if (check->more > 0)
        doctor_ok(check->doctor, "peer", "%zu more were not looked at", check->more);
}

/* ---- who is who ------------------------------------------------------------------------------ */

static void check_names(struct fleet_check *check)
{
    for (uint32_t i = 0; check->view && i < check->view->peer_count; i++) {
        const struct lease_peer *peer = &check->view->peers[i];
        if (peer_has_twin(check->view, peer, check->own_id))
            doctor_wrong(check->doctor, peer->name,
                         "give one of them another name: --name, or name =",
                         "two hosts have this name, one of them at %s: their leases cannot be told "
                         "apart",
                         peer->endpoint[0] ? peer->endpoint : "an address that is not known");
    }
}

static void check_owners(struct fleet_check *check)
{
    for (uint32_t i = 0; check->view && i < check->view->provider_count; i++) {
        const struct lease_view *view = &check->view->providers[i];
        if (strcmp(view->state, "conflict") == 0)
            doctor_wrong(
                check->doctor, view->provider,
                "own=no in its line on all hosts but one, or another name where it is another "
                "server",
                "several hosts own it; %s is asked, what the others grant is not counted",
                view->owner);
        else if (strcmp(view->state, "stale") == 0 || strcmp(view->state, "lost") == 0)
            doctor_wrong(check->doctor, view->provider,
                         "see whether that host and its lease-agent run",
                         "%s owns it and was not heard for %.0f s", view->owner,
                         (double)view->heard_ms / 1e3);
        else if (strcmp(view->state, "live") == 0 && view->owner[0] &&
                 strcmp(view->owner, check->view->view_from) != 0)
            doctor_ok(check->doctor, view->provider, "%s owns it, heard %.1f s ago", view->owner,
                      (double)view->heard_ms / 1e3);
    }
}

/* Others are told where it is reached; a loopback address is of no use to them. */
static void check_urls(struct fleet_check *check)
{
    for (size_t i = 0; check->told && has_distant_peer(check) && i < check->doctor->provider_count;
         i++) {
        const struct provider_spec *spec = &check->doctor->providers[i];
        char mend[160];
        if (spec->own == OWN_NO || spec->client_url[0] || !spec->url[0] ||
            !spec_url_is_loopback(spec))
            continue;
        snprintf(mend, sizeof mend, "add ,url=http://ADDRESS:%u with an address of this host",
                 spec->port);
        doctor_wrong(
            check->doctor, spec->name, mend,
            "clients on other hosts lease it, and are not told where it is: %s is loopback",
            spec->url);
    }
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static int64_t seconds_of(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return now.tv_sec;
}

/* What the agent wrote a moment ago cannot be of the future. */
static void check_wall_clock(struct doctor *doctor)
{
    char path[sizeof doctor->directory + sizeof "/" ROUTES_FILE];
    struct stat facts;
    snprintf(path, sizeof path, "%s/" ROUTES_FILE, doctor->directory);
    if (stat(path, &facts) == 0 && facts.st_mtime > seconds_of(CLOCK_REALTIME) + 2)
        doctor_wrong(doctor, "clock", "set it by NTP, and without steps",
                     "the wall clock went back by %lld s: what is logged is out of order",
                     (long long)(facts.st_mtime - seconds_of(CLOCK_REALTIME)));
}

static void check_clocks(struct fleet_check *check)
{
    struct doctor *doctor = check->doctor;
    int64_t slept = seconds_of(CLOCK_BOOTTIME) - seconds_of(CLOCK_MONOTONIC);
    int64_t wall = seconds_of(CLOCK_REALTIME), ahead = 0;
    const char *whose = NULL;
    check_wall_clock(doctor);
    /* epochs begin as the seconds of their owner's wall clock, and grow by one at a time */
    for (uint32_t i = 0; check->view && i < check->view->provider_count; i++) {
        const struct lease_view *view = &check->view->providers[i];
        int64_t by = (int64_t)view->epoch - wall;
        if (by > ahead) {
            ahead = by;
            whose = view->owner[0] ? view->owner : view->provider;
        }
    }
    if (ahead > CLOCK_SLACK_S)
        doctor_wrong(
            doctor, "clock", "set both clocks by NTP; leases do not depend on it, logs do",
            "an epoch of %s lies %lld s ahead of this host's clock: one of the two is, or was, "
            "wrong",
            whose, (long long)ahead);
    else
        doctor_ok(doctor, "clock", "no other host is ahead; suspended for %lld s since boot",
                  (long long)(slept > 0 ? slept : 0));
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void look(struct fleet_check *check)
{
    struct cli *cli = check->doctor->cli;
    char error[512];
    if (cli_open_agent(cli, "lease doctor", error, sizeof error) < 0) {
        doctor_wrong(check->doctor, "fleet", "correct it", "%s", error);
        return;
    }
    own_agent_id(cli, check->own_id);
    lease_read(cli->agent, 0);
    if (lease_fleet(cli->agent, &check->view) < 0)
        check->view = NULL;
}

void doctor_check_fleet(struct doctor *doctor)
{
    struct effective *effective = calloc(1, sizeof *effective);
    struct fleet_check *check = calloc(1, sizeof *check);
    if (effective && check) {
        check->doctor = doctor;
        if (doctor->has_speaker && effective_read(doctor->directory, effective) == 0 &&
            fleet_config_is_on(&effective->fleet))
            check->told = &effective->fleet;
        if (doctor->has_speaker && routes_read(doctor->directory, &check->routes) < 0)
            check->routes = NULL;
        collect_peers(check);
        bool any = check->told || check->peer_count > 0;
        if (any)
            look(check);
        check_listening(check);
        check_peers(check);
        check_names(check);
        check_owners(check);
        check_urls(check);
        if (any)
            check_clocks(check);
        routes_free(&check->routes);
        lease_fleet_free(&check->view);
    }
    free(effective);
    free(check);
}
