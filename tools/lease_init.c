/* lease init: looks for servers on the usual ports of this host, writes a first configuration. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/probe.h"
#include "broker/host_clock.h"
#include "tools/lease_cli.h"

/* llama-server, a second one, ollama, vLLM, LM Studio, SGLang: where each listens by default. */
static const unsigned ports[] = {8080, 8081, 11434, 8000, 1234, 30000};

#define LOOK_MS 500

static ns_t clock_now(void)
{
    return host_now_ns();
}

/* Writes the lines for one port. True where something answers there. */
static bool look_at_port(FILE *out, unsigned port)
{
    char text[96], error[SPEC_ERROR_SIZE];
    struct provider_spec spec;
    static struct reading reading; /* large */
    snprintf(text, sizeof text, "local-%u=http://127.0.0.1:%u", port, port);
    if (spec_parse(text, &spec, error) < 0 ||
        probe_now(&spec, PROBE_QUICK, NULL, LOOK_MS, clock_now, &reading) < 0 ||
        reading.health == HEALTH_DOWN)
        return false;
    if (reading.health == HEALTH_UNKNOWN) {
        fprintf(out,
                "\n# Port %u answers, but not as a server that can be asked what it has free. Its "
                "leases\n# alone are counted then; say how many slots it has.\n"
                "provider local-%u = static:1,own=yes,url=http://127.0.0.1:%u\n",
                port, port, port);
        return true;
    }
    fprintf(out, "\n# %s, %s", reading.engine[0] ? reading.engine : "answers",
            health_name((enum health)reading.health));
    if (reading.slots_total > 0)
        fprintf(out, ", %d slot%s", reading.slots_total, reading.slots_total == 1 ? "" : "s");
    fprintf(out, "\nprovider local-%u = http://127.0.0.1:%u%s\n", port, port,
            reading.health == HEALTH_UNAUTHORIZED ? ",key-file=/path/of/a/file/with/the/key" : "");
    return true;
}

static unsigned write_text(FILE *out)
{
    unsigned found = 0;
    fprintf(out, "# Leasehold: the LLM servers that leases are taken on. Written by `lease init`.\n"
                 "# NAME = VALUE, comments begin with #; the names below may be changed.\n");
    for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++)
        if (look_at_port(out, ports[i]))
            found++;
    if (found == 0)
        fprintf(out, "\n# No server answered on the usual ports of this host. Declare one:\n"
                     "# provider z4 = http://127.0.0.1:8080\n");
    fprintf(out, "\n# One name for several, tried in this order:\n# pool coder = z4,m5\n");
    return found;
}

/* The folders above a file. False with errno. */
static bool make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int rc = mkdir(path, 0700);
        *slash = '/';
        if (rc < 0 && errno != EEXIST)
            return false;
    }
    return true;
}

/* All of it or nothing, and never over another. False with errno. */
static bool write_file(char *path, const char *text, size_t size)
{
    if (!make_folders(path))
        return false;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool written = write(fd, text, size) == (ssize_t)size;
    int failed = errno;
    if (close(fd) < 0 || !written) {
        unlink(path);
        errno = failed;
        return false;
    }
    return true;
}

static int exists_already(const char *path)
{
    say("there is a configuration already: %s, edit it (--print shows what would be written)",
        path);
    return EXIT_UNAVAILABLE;
}

/* Where it is to be written: where it would be read from. */
static int choose_path(const struct cli *cli, char *path)
{
    if (config_find(cli->options.config, path) && access(path, F_OK) == 0)
        return exists_already(path);
    if (!cli->options.config && !config_user_path(path)) {
        say("neither HOME nor XDG_CONFIG_HOME is set, name a file with --config");
        return EXIT_USAGE;
    }
    return EXIT_DONE;
}

int command_init(struct cli *cli)
{
    char path[CONFIG_PATH_SIZE];
    bool print = cli->options.given & OPTION_PRINT;
    if (print) {
        write_text(stdout);
        return EXIT_DONE;
    }
    int code = choose_path(cli, path);
    if (code != EXIT_DONE)
        return code;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    unsigned found = out ? write_text(out) : 0;
    bool written = out && fclose(out) == 0 && write_file(path, text, size);
    int failed = errno;
    free(text);
    if (!written && failed == EEXIST)
        return exists_already(path);
    if (!written) {
        say("%s cannot be written: %s", path, strerror(failed));
        return EXIT_INTERNAL;
    }
    printf("%s: %u %s found%s\n", path, found, found == 1 ? "server" : "servers",
           found == 0 ? ", add your providers to it" : "");
    return EXIT_DONE;
}
