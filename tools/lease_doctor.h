/* lease doctor, in parts: the host (lease_doctor.c), its providers (lease_doctor_provider.c), and other
 * hosts (lease_doctor_fleet.c, lease_doctor_net.c). */
#ifndef TOOLS_LEASE_DOCTOR_H
#define TOOLS_LEASE_DOCTOR_H

#include "agent/spec.h"
#include "tools/lease_cli.h"

struct doctor {
    struct cli *cli;
    bool json;
    json_t *array;
    int findings;
    char directory[256]; /* the runtime directory in use, "" for none */
    bool has_speaker;    /* whether it beats or not */
    bool has_peers;      /* ours, or that speaker's */
    struct provider_spec providers[DECLARED_MAX];
    size_t provider_count;
};

__attribute__((format(printf, 3, 4))) void doctor_ok(struct doctor *doctor, const char *check,
                                                     const char *format, ...);
__attribute__((format(printf, 4, 5))) void doctor_wrong(struct doctor *doctor, const char *check,
                                                        const char *mend, const char *format, ...);

/* Reads NAME=SPEC and keeps it to be checked; one of the same name counts once. */
void doctor_add_provider(struct doctor *doctor, const char *text);

/* Its book, its key file, and what its server answers. */
void doctor_check_provider(struct doctor *doctor, const struct provider_spec *spec);

/* Other hosts; asks them where there are some. Wants the providers to be known. */
void doctor_check_fleet(struct doctor *doctor);

#endif
