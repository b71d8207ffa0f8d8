/* lease peers, lease forget: the agents of other hosts. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/client.h"
#include "agent/effective.h"
#include "broker/record.h"
#include "tools/lease_cli.h"
#include "tools/lease_host.h"
#include "tools/lease_text.h"

#define FORGET_MS 1500

/* ---- peers ----------------------------------------------------------------------------------- */

static bool is_gone(const struct lease_peer *peer)
{
    return strcmp(peer->state, "lost") == 0;
}

/* Two hosts that call themselves the same are one mistake; one that was installed anew is none. */
bool peer_has_twin(const struct lease_fleet *fleet, const struct lease_peer *peer,
                   const char *own_id)
{
    if (!peer->name[0] || is_gone(peer))
        return false;
    if (own_id[0] && strcmp(peer->name, fleet->view_from) == 0 && strcmp(peer->id, own_id) != 0)
        return true;
    for (uint32_t i = 0; i < fleet->peer_count; i++) {
        const struct lease_peer *other = &fleet->peers[i];
        if (other != peer && !is_gone(other) && strcmp(other->name, peer->name) == 0 &&
            strcmp(other->id, peer->id) != 0)
            return true;
    }
    return false;
}

void own_agent_id(const struct cli *cli, char id[33])
{
    const char *directory = lease_agent_directory(cli->agent);
    struct effective *effective = malloc(sizeof *effective);
    id[0] = '\0';
    if (effective && host_speaker_lives(directory) && effective_read(directory, effective) == 0)
        for (int i = 0; i < 16; i++)
            snprintf(id + 2 * i, 3, "%02x", effective->id[i]);
    free(effective);
}

static void add_peer(struct text_table *table, const struct lease_fleet *fleet,
                     const struct lease_peer *peer, const char *own_id)
{
    char heard[16];
    text_span(heard, sizeof heard, peer->heard_ms);
    const char *cells[] = {peer->name[0] ? peer->name : "-",
                           peer->endpoint[0] ? peer->endpoint : "-",
                           peer->version[0] ? peer->version : "-",
                           peer->heard_ms < 0 ? "never heard" : peer->state,
                           heard,
                           peer_has_twin(fleet, peer, own_id) ? "another host has this name" : ""};
    text_table_row(table, cells);
}

static void print_peers(const struct cli *cli, const struct lease_fleet *fleet, const char *own_id)
{
    static const char *const heads[] = {"PEER", "ENDPOINT", "VERSION", "STATE", "HEARD", ""};
    struct text_table table;
    text_table_begin(&table, heads, 6);
    for (uint32_t i = 0; i < fleet->peer_count; i++)
        add_peer(&table, fleet, &fleet->peers[i], own_id);
    text_table_print(&table,
                     cli_has_peers(cli)
                         ? "no peer answers: `lease doctor` says why"
                         : "no peers: add 'peer = tcp://HOST:5771' to the configuration, or pass "
                           "--peer tcp://HOST:5771");
}

static int print_peers_json(const struct lease_fleet *fleet, const char *own_id)
{
    json_t *value = fleet_value(fleet, "");
    json_t *peers = json_object_get(value, "peers");
    for (uint32_t i = 0; i < fleet->peer_count; i++)
        json_object_set_new(json_array_get(peers, i), "same_name",
                            json_boolean(peer_has_twin(fleet, &fleet->peers[i], own_id)));
    json_object_del(value, "providers");
    return print_json(value);
}

int command_peers(struct cli *cli)
{
    struct lease_fleet *fleet = NULL;
    int code = cli_open(cli);
    if (code != EXIT_DONE)
        return code;
    int rc = lease_read(cli->agent, 0);
    if (rc == 0)
        rc = lease_fleet(cli->agent, &fleet);
    if (rc < 0)
        return say_refusal(cli, "the peers cannot be told", rc, NULL);
    char own_id[33];
    own_agent_id(cli, own_id);
    if (cli->options.given & OPTION_JSON)
        code = print_peers_json(fleet, own_id);
    else
        print_peers(cli, fleet, own_id);
    lease_fleet_free(&fleet);
    return code;
}

/* ---- forget ---------------------------------------------------------------------------------- */

static int say_forgotten(const char *peer, int rc, const struct message *reply)
{
    int error = rc < 0 ? rc : reply->ok ? 0 : reply->error;
    switch (error) {
    case 0: return EXIT_DONE;
    case LEASE_EUNKNOWN:
        say("%s: no such peer, `lease peers` names them", peer);
        return EXIT_UNAVAILABLE;
    case LEASE_EINVAL: /* it does not know the question: nothing of the fleet, or an older version */
        say("%s: the lease-agent of this host knows no peers", peer);
        return EXIT_UNAVAILABLE;
    case LEASE_EABSENT:
        say("%s: no lease-agent runs here, and nobody else keeps peers", peer);
        return EXIT_UNAVAILABLE;
    case LEASE_ETIMEOUT:
        say("%s: the lease-agent of this host does not answer, see `lease doctor`", peer);
        return EXIT_UNAVAILABLE;
    default: say("%s: %s", peer, lease_strerror(error)); return EXIT_INTERNAL;
    }
}

int command_forget(struct cli *cli)
{
    const char *peer = cli->options.operands[0];
    if (!name_is_valid(peer)) {
        say("'%.80s' is no name of a peer: 1 to %d of A-Z a-z 0-9 . _ -", peer, NAME_CHARS_MAX);
        return EXIT_USAGE;
    }
    int code = cli_open(cli);
    if (code != EXIT_DONE)
        return code;
    static struct message request, reply; /* both large */
    static const uint8_t drawn_there[WIRE_ID_BYTES];
    message_request(&request, MESSAGE_FORGET, drawn_there);
    snprintf(request.name, sizeof request.name, "%s", peer);
    int rc = client_ask(lease_agent_directory(cli->agent), &request, &reply, FORGET_MS);
    return say_forgotten(peer, rc, &reply);
}
