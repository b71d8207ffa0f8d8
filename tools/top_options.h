/* The command line of leasetop. */
#ifndef TOOLS_TOP_OPTIONS_H
#define TOOLS_TOP_OPTIONS_H

#include "broker/limits.h"
#include "tools/top_screen.h"

#define TOP_PEERS_MAX 16

struct top_options {
    bool batch, json, mouse, help, version;
    uint64_t frames; /* 0: until stopped */
    int64_t delay_ms;
    int width; /* 0: not told */
    enum top_color color;
    enum top_sort sort;
    bool reverse;
    const char *filter; /* "" none */
    const char *dir;
    const char *config;
    const char *providers[PROVIDERS_MAX];
    size_t provider_count;
    const char *peers[TOP_PEERS_MAX]; /* agents of other hosts, for a host without one */
    size_t peer_count;
};

/* False with one line in why (256 bytes). */
bool top_options_read(int argc, char **argv, struct top_options *options, char *why);

void top_options_help(FILE *out);

#endif
