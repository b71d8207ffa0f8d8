/* Any text as what stands on a command line: an id of a lease, a duration, an endpoint, and all of it
 * as arguments, one a line. */
#include <stdio.h>

#include "agent/endpoint.h"
#include "broker/record.h"
#include "tests/fuzz/fuzz.h"
#include "tools/lease_options.h"

#define ARGUMENTS_MAX 96

static void try_id(const char *text)
{
    char provider[NAME_SIZE] = "unchanged", back[LEASE_ID_TEXT_SIZE];
    struct lease_id id = {1, 2};
    if (lease_id_parse(text, provider, &id)) {
        must(name_is_valid(provider) && id.counter != 0);
        lease_id_format(provider, id, back);
        must(strcmp(back, text) == 0);
    } else {
        must(strcmp(provider, "unchanged") == 0 && id.instance == 1 && id.counter == 2);
    }
}

static void try_duration(const char *text)
{
    char back[32];
    uint64_t ms = 0, again = 0;
    if (!duration_read(text, 1, 86400000, &ms))
        return;
    must(ms >= 1 && ms <= 86400000);
    (void)snprintf(back, sizeof back, "%llums", (unsigned long long)ms);
    must(duration_read(back, 1, 86400000, &again) && again == ms);
    must(!duration_read(text, ms + 1, UINT64_MAX, &again));
}

static void try_endpoint(const char *text)
{
    struct endpoint endpoint, again;
    char back[ENDPOINT_SIZE];
    if (!endpoint_parse(text, &endpoint))
        return;
    must(endpoint.host[0] && memchr(endpoint.host, '\0', sizeof endpoint.host) != NULL);
    endpoint_format(endpoint.host, endpoint.port, back);
    must(endpoint_parse(back, &again) && again.has_port);
    must(strcmp(endpoint.host, again.host) == 0 && endpoint.port == again.port);
}

static void must_be_in_bounds(const struct lease_cli_options *options)
{
    must(options->provider_count <= PROVIDERS_MAX && options->peer_count <= PEER_OPTIONS_MAX);
    must(options->operand_count <= OPERANDS_MAX);
    must(options->require <= LEASE_BASIS_OWNER);
    must(options->on_lost <= ON_LOST_IGNORE && options->nested <= NESTED_NEW);
    must(options->busy_code >= 0 && options->busy_code <= 255 && options->slot_plus_1 >= 0);
    for (size_t i = 0; i < options->operand_count; i++)
        must(options->operands[i] != NULL);
}

static void try_arguments(char *text)
{
    char *arguments[ARGUMENTS_MAX + 1], error[OPTIONS_ERROR_SIZE];
    static struct lease_cli_options options;
    int count = 0;
    for (char *at = text; at && count < ARGUMENTS_MAX; count++) {
        arguments[count] = at;
        at = strchr(at, '\n');
        if (at)
            *at++ = '\0';
    }
    arguments[count] = NULL;
    for (int with_command = 0; with_command < 2; with_command++) {
        error[0] = '\0';
        if (options_read(arguments, count, UINT32_MAX, with_command, &options, error))
            must_be_in_bounds(&options);
        else
            must(error[0] && memchr(error, '\0', sizeof error) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = fuzz_text(bytes, size);
    try_id(text);
    try_duration(text);
    try_endpoint(text);
    try_arguments(text);
    free(text);
    return 0;
}
