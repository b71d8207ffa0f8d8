/* engineserver: the stand-ins as a program, for scripts and demonstrations. */
#define _GNU_SOURCE
#include "tests/lib/engineserver.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: engineserver [options]\n"
    "  --kind KIND      vllm, sglang, tgi, llama-swap, llama-skein, ollama or lmstudio (vllm)\n"
    "  --host ADDRESS   numeric IPv4 address (127.0.0.1)\n"
    "  --port N         0 picks a free one (0)\n"
    "  --port-file FILE write the port there\n"
    "  --old            the older version\n"
    "  --slots N        places (1)\n"
    "  --lag-ms N       how old the gauges are (0)\n"
    "  --tracking       vllm: /load counts\n"
    "  --loading-ms N   503 until then (0)\n"
    "  --models NAMES   comma-separated (coder,big)\n"
    "  --load-ms N      what starting a model takes (50)\n"
    "  --ttl-s N        an idle model is stopped after (0: never)\n"
    "  --max-waiting N  ollama: more are turned away (512)\n"
    "  --api-key KEY    ask for this key\n";

static const char *port_file;

static bool take_option(struct engineserver_options *options, const char *name)
{
    unsigned number = optarg ? (unsigned)strtoul(optarg, NULL, 10) : 0;
    struct {
        const char *name;
        const char **text;
        unsigned *number;
        bool *flag;
    } table[] = {
        {"kind", &options->kind, NULL, NULL},
        {"host", &options->host, NULL, NULL},
        {"port", NULL, &options->port, NULL},
        {"port-file", &port_file, NULL, NULL},
        {"old", NULL, NULL, &options->old},
        {"slots", NULL, &options->slots, NULL},
        {"lag-ms", NULL, &options->lag_ms, NULL},
        {"tracking", NULL, NULL, &options->tracking},
        {"loading-ms", NULL, &options->loading_ms, NULL},
        {"models", &options->models, NULL, NULL},
        {"load-ms", NULL, &options->load_ms, NULL},
        {"ttl-s", NULL, &options->ttl_s, NULL},
        {"max-waiting", NULL, &options->max_waiting, NULL},
        {"api-key", &options->api_key, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, name) != 0)
            continue;
        if (table[i].text)
            *table[i].text = optarg;
        else if (table[i].number)
            *table[i].number = number;
        else
            *table[i].flag = true;
        return true;
    }
    return false;
}

static void parse(struct engineserver_options *options, int argc, char **argv)
{
    static const struct option names[] = {{"kind", required_argument, NULL, 1},
                                          {"host", required_argument, NULL, 1},
                                          {"port", required_argument, NULL, 1},
                                          {"port-file", required_argument, NULL, 1},
                                          {"old", no_argument, NULL, 1},
                                          {"slots", required_argument, NULL, 1},
                                          {"lag-ms", required_argument, NULL, 1},
                                          {"tracking", no_argument, NULL, 1},
                                          {"loading-ms", required_argument, NULL, 1},
                                          {"models", required_argument, NULL, 1},
                                          {"load-ms", required_argument, NULL, 1},
                                          {"ttl-s", required_argument, NULL, 1},
                                          {"max-waiting", required_argument, NULL, 1},
                                          {"api-key", required_argument, NULL, 1},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int got, index;
    while ((got = getopt_long(argc, argv, "h", names, &index)) != -1) {
        if (got == 1 && take_option(options, names[index].name))
            continue;
        fputs(usage, got == 'h' ? stdout : stderr);
        exit(got == 'h' ? 0 : 64);
    }
}

/* Whoever waits for the file never reads half of it. */
static bool write_port_file(unsigned port)
{
    char beside[4096];
    if (snprintf(beside, sizeof beside, "%s.new", port_file) >= (int)sizeof beside)
        return false;
    FILE *file = fopen(beside, "w");
    if (!file)
        return false;
    bool written = fprintf(file, "%u\n", port) > 0;
    written = fclose(file) == 0 && written;
    return written && rename(beside, port_file) == 0;
}

int main(int argc, char **argv)
{
    struct engineserver_options options;
    sigset_t signals;
    int caught;
    engineserver_defaults(&options);
    parse(&options, argc, argv);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    struct engineserver *server = engineserver_start(&options);
    if (!server)
        return 1;
    printf("engineserver: %s on http://%s:%u\n", options.kind, options.host,
           engineserver_port(server));
    fflush(stdout);
    if (port_file && !write_port_file(engineserver_port(server)))
        perror("engineserver: port file");
    while (sigwait(&signals, &caught) != 0)
        continue;
    engineserver_stop(server);
    return 0;
}
