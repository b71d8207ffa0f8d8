/* Where leasetop's snapshots come from: the files of this host, through liblease. It asks no server
 * and no other host, and takes no lock; but where it was given peers and no agent of this host hears
 * them, it asks those.
 *
 * Thread rules: one thread owns a source. top_source_follow starts a second one that does the
 * looking; from then on only top_source_next and top_source_close may be called. */
#ifndef TOOLS_TOP_SOURCE_H
#define TOOLS_TOP_SOURCE_H

#include "tools/top_model.h"

struct top_source;

struct top_source_options {
    const char *dir;    /* NULL: the usual ones */
    const char *config; /* NULL: the usual ones */
    const char *const *providers;
    size_t provider_count;
    const char *const *peers;
    size_t peer_count;
};

/* 0, or an exit code with one line in error. */
int top_source_open(const struct top_source_options *options, struct top_source **source,
                    char *error, size_t error_size);
void top_source_close(struct top_source **source);

/* Looks now. 0 or a negative LEASE_E...; then snapshot->fleet is NULL. The fleet is the caller's. */
int top_source_take(struct top_source *source, struct top_snapshot *snapshot);

/* From now on a thread looks: when a book changes, when the agent comes or goes, and each
 * *delay_ms. Answers a descriptor that is readable whenever top_source_next has something new; -1
 * where no thread is to be had. */
int top_source_follow(struct top_source *source, _Atomic int64_t *delay_ms);

/* The newest snapshot that was not given out yet. False: none. Never blocks. */
bool top_source_next(struct top_source *source, struct top_snapshot *snapshot);

#endif
