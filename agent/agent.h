/* The agent as the rooms of this folder see it. Internal; programs see lease.h.
 *
 * Locks, in the order in which they may be taken: agent->providers_mutex (the list grows, never
 * shrinks), group->mutex, provider->mutex (its book and table), agent->directory_mutex, agent->held_mutex (our
 * own leases), and that of remote.h, under which the directory's may be taken. None is held
 * while anything is awaited, but for the book's file lock under provider->mutex, within its budget.
 */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <time.h>

#include "agent/effective.h"
#include "agent/lease.h"
#include "agent/spec.h"
#include "broker/host_dir.h"
#include "broker/host_process.h"
#include "broker/host_table.h"
#include "broker/table_memory.h"

/* What one handle knows of: those declared to it (PROVIDERS_MAX at most) and those of other hosts. Further
 * ones are LEASE_EFULL: they are in no view, and lease_agent_warning() says so. */
#define KNOWN_MAX 512

#define AGENT_HELD_MAX    4096 /* leases of one handle that are looked after; more are LEASE_EFULL */
#define LOCK_BUDGET_MS    20
#define TIMEOUT_MS        1500
#define PROBE_BUDGET_MS   PROBE_MS
#define SETTLE_BOOK_MS    20
#define DECLARED_LEFT_MAX 16 /* by then nobody reads the first any more */
#define RETIRED_MAX       16 /* the mapping that was left first makes room */
#define AGENT_TEXT_SIZE   512

/* Which file it was, and of when. */
struct file_mark {
    ino_t inode;
    struct timespec modified;
};

struct lease_agent;
struct group;
struct remote;

/* What befell the book in use, so that another one took its place. */
enum book_loss {
    LOSS_NONE = 0,
    LOSS_REMOVED,  /* it, or the runtime directory */
    LOSS_SPOILT,   /* it was cut short, or cannot be read */
    LOSS_REPLACED, /* the same, and another process began it anew */
};

/* What a provider was declared as. It does not change: another one takes its place, and those that were
 * left stay until the end, since somebody may read them without a lock. */
struct declared {
    struct provider_spec spec;
    char text[EFFECTIVE_SPEC_SIZE]; /* NAME=SPEC */
    bool inherited;        /* as the speaker left it: followed when the next one has another */
    struct declared *left; /* the one before, DECLARED_LEFT_MAX at most */
};

/* A provider that this agent knows, with its book. */
struct provider {
    struct lease_agent *agent;
    char name[NAME_SIZE];
    _Atomic(struct declared *) declared;  /* NULL: not at all */
    _Atomic bool owned;                   /* this host speaks for it */
    _Atomic(struct group *) group;        /* that its model shares a GPU with; NULL: none */
    _Atomic(struct provider_spec *) told; /* by the owner on another host, NULL: nothing */

    pthread_mutex_t mutex; /* guards what follows */
    bool mirrored;         /* made since another host's agent told of it */
    struct book *book;
    struct broker broker;
    enum lease_reach reach;             /* of the table in use; NONE: no book yet */
    _Atomic(struct table *) table;      /* read without it to see whether the book is open */
    _Atomic(struct host_words *) words; /* read without the mutex by whoever sleeps on them */
    struct host_table host;
    struct table_memory *memory;            /* of the process tier */
    struct host_words own_words;            /* the same */
    struct host_file *retired[RETIRED_MAX]; /* of tables that were left: somebody may sleep there */
    uint32_t retired_count;
    _Atomic ns_t settled_ns; /* until then nothing is asked of a book that we made; 0: no such */
    enum book_loss loss;     /* an event waits for lease_event_next */
    char warning[AGENT_TEXT_SIZE];
    bool blind; /* for the step under way: the server is not to be asked */
};

/* A lease of ours, looked after by the keeper. */
struct held {
    struct lease_id id;       /* counter 0: this entry is free */
    struct lease_id known_as; /* how the caller knows it: another one where the book was changed */
    struct provider *provider;
    struct holder holder;
    uint32_t cell;
    uint32_t units;
    int32_t slot;
    uint32_t ttl_ms; /* as asked, 0 the default */
    uint32_t flags;  /* enum lease_request_flags */
    ns_t renew_ns;   /* when to renew it next */
    bool dispatched;
    bool lost;       /* an event waits for lease_event_next */
    bool named;      /* the owner on another host knows it as it is */
    bool unanswered; /* by that owner, when it was renewed last */
    bool releasing;  /* given back, but the book was locked: done as soon as it can be */
    bool untold;     /* given back here, but the owner on another host does not know it yet */
    bool looked_at;  /* once before: its book is watched from then on */
    bool undo; /* with untold: an owner that was silent may have granted it, `asked_by` what */
    struct request_id asked_by;
    ns_t asked_ns;  /* when `asked_by` was sent first: what it grants counts from there */
    ns_t forget_ns; /* of an untold one: it has ended by itself */
    ns_t away_ns;   /* when its owner on another host may be asked out of turn */
    enum reason reason;
    enum record_end end;
};

struct speaker;

struct lease_agent {
    uint32_t generation; /* of host_fork at the opening */
    unsigned flags;      /* enum lease_open_flags */
    struct host_process self;
    char host[NAME_SIZE];
    char label[LABEL_SIZE];
    char warning[AGENT_TEXT_SIZE];
    pthread_mutex_t directory_mutex; /* while it is found again after it vanished */
    struct host_dir directory;
    bool has_directory;
    struct host_dir_memory places; /* where the directory is looked for, as of the opening */
    _Atomic int64_t follow_ns;     /* when to look at the choice next */
    _Atomic uint32_t moves;        /* grows whenever another directory is used */
    _Atomic int64_t configured_ns; /* when to look at the speaker's configuration next */

    pthread_mutex_t providers_mutex;
    struct file_mark configuration; /* that was followed last */
    struct provider *providers[KNOWN_MAX];
    _Atomic uint32_t provider_count;
    _Atomic bool is_full;         /* there are more than KNOWN_MAX */
    pthread_mutex_t groups_mutex; /* guards the list; nothing is taken under it */
    struct group *groups;

    pthread_mutex_t held_mutex;
    pthread_cond_t held_changed;
    struct held *held;  /* AGENT_HELD_MAX */
    uint32_t held_used; /* entries [0, held_used) were ever used */
    uint32_t held_count;
    bool held_lately; /* one was added since the keeper last looked */
    pthread_t keeper;
    bool keeper_runs;
    bool keeper_sleeps; /* until it is told of a lease */
    int watch_fd;       /* book_watch.h, and what ends its wait; -1: none */
    int wake_fd;
    _Atomic bool closing;
    _Atomic uint32_t interrupts; /* grows with lease_interrupt */
    int event_fd;

    struct speaker *speaker; /* NULL: this agent does not speak for the host */
    struct remote *remote;   /* what it knows of the fleet, and asks there (remote.h) */
    _Atomic(struct fleet_config *) fleet; /* as it was told, or the last speaker left; NULL: off */
};

/* provider.c */

/* As it was declared, NULL where it was not. */
static inline const struct provider_spec *provider_spec(const struct provider *provider)
{
    const struct declared *declared =
        atomic_load_explicit(&provider->declared, memory_order_acquire);
    return declared ? &declared->spec : NULL;
}

/* The provider of this name with its book open, or NULL and *error: LEASE_EUNKNOWN, LEASE_EINVAL,
 * LEASE_EFULL, LEASE_ENOMEM. A book that cannot be opened in the runtime directory falls back to
 * the process tier, with provider->warning. */
struct provider *provider_find(struct lease_agent *agent, const char *name, int *error);

/* The same for a copy of what another host owns: the book is made where there is none. */
struct provider *provider_mirror(struct lease_agent *agent, const char *name, int *error);

/* Found while looking for all there are: its book or its owner has been seen, or it stands as NAME=SPEC
 * among what the speaker serves, which come first. provider_find() would ask for each of them who knows it. */
void provider_seen(struct lease_agent *agent, const char *name);
void provider_served(struct lease_agent *agent, const char *text);

/* The URL names this host, as far as can be told without asking a resolver. */
bool provider_is_here(const struct provider_spec *spec);

/* Adds a declared one, NAME=SPEC, without opening its book; why (SPEC_ERROR_SIZE bytes) says what is
 * wrong with it. LEASE_EINVAL, LEASE_EFULL, LEASE_ENOMEM. A second declaration of the same name
 * replaces the first while no book is open; with only_new it changes nothing. */
int provider_declare(struct lease_agent *agent, const char *text, bool only_new, char *why);

/* Opens a declared one's book where it is not open yet; creates it in the host tier. */
int provider_open(struct provider *provider);

/* The same of a provider that another host owns, though nobody declared it here. */
int provider_open_copy(struct provider *provider);

/* Declares it anew as the speaker has it now, where it was declared by what a speaker left. The caller
 * holds agent->providers_mutex, and not provider->mutex. */
void provider_declare_again(struct provider *provider, const char *text);

/* It was declared anew: what its open book is told of that. Not under provider->mutex. */
void provider_settle_settings(struct provider *provider);

void provider_free(struct provider *provider);

/* lock, load, decide, commit, unlock. event->now is filled in here. LEASE_ELOCKED and other errors
 * of the table: nothing was decided. */
int provider_step(struct provider *provider, struct event *event, struct effects *effects,
                  int64_t budget_ms);

/* The same without waking who sleeps on the book: that is owed, for when there is time. */
int provider_step_owing(struct provider *provider, struct event *event, struct effects *effects,
                        int64_t budget_ms, struct host_wakes *owed);
void provider_wake(struct provider *provider, struct host_wakes *owed);

/* The same where nobody knows how to ask the server: leases alone decide. */
int provider_step_blind(struct provider *provider, struct event *event, struct effects *effects,
                        int64_t budget_ms);

/* How the server is asked from here: as it was declared, or at the URL that its owner tells; NULL: not
 * at all. provider_told takes such a URL where nothing was declared. */
const struct provider_spec *provider_source(const struct provider *provider);
void provider_told(struct provider *provider, const char *url);

/* Another host owns it: its book is a copy from now on, where it was none. */
void provider_follow(struct provider *provider);

/* view.c: opens the books of all providers that are known in the runtime directory. */
void agent_discover(struct lease_agent *agent);

/* Brings the book up to date without the lock. The caller holds provider->mutex. */
int provider_look(struct provider *provider);

/* Ends leases of processes of this host that are dead. Returns how many ended, or an error. */
enum reap {
    REAP_HOLDERS, /* one kill(pid, 0) for each lease: cheap enough for every refusal */
    REAP_ALL,     /* waiters too; start times are compared and zombies found */
};
int provider_reap(struct provider *provider, enum reap how, int64_t budget_ms);

/* "book locked by pid 7, ...": for LEASE_ELOCKED, also where the book could not even be opened. */
void provider_lock_text(struct lease_agent *agent, const char *name, char *text, size_t size);

/* The live words, or others that nobody else knows while the book's file is cut short: the next step
 * opens it anew. To be asked for each time, since a touch of a page that is gone ends the process. */
struct host_words *provider_words(struct provider *provider);

/* Leaves the book for the one of the same name in the agent's directory. */
void provider_move(struct provider *provider, enum book_loss loss);

/* Waits a moment before the first question to a book that this process has made. Whether it is the
 * first of its name, or stands in the place of one that was removed, cannot be told: those who hold
 * leases in that one are to come first. */
void provider_settle(struct provider *provider);

/* Takes the loss of a book that was not told yet, with its line. False where there is none. */
bool provider_take_loss(struct provider *provider, char *text, size_t size);

/* Where clients reach the server, "" unknown. */
const char *provider_url(const struct provider *provider);

/* reader.c */

/* Has a reading made that was sent at fresh_ns or later, by whoever is at it: the speaker, another
 * process, or this thread. 0 also where the server did not answer, which is a reading too.
 * LEASE_ETIMEOUT: none by deadline_ns. */
int reader_get(struct provider *provider, ns_t fresh_ns, ns_t deadline_ns);

/* The same for people who look: it keeps no server awake. */
int reader_look(struct provider *provider, ns_t fresh_ns, ns_t deadline_ns);

/* The same as reader_get of several at once, each by a thread of its own but the first; errors has room for one each. */
void reader_get_all(struct provider *const *providers, uint32_t count, ns_t fresh_ns,
                    ns_t deadline_ns, int *errors);

/* A speaker is alive and beats. */
bool reader_has_speaker(const struct lease_agent *agent);

/* follow.c */

/* At most once a second: is the runtime directory still the one to use? Where it is not, every book
 * is opened anew in the other one; the keeper takes our leases there again. */
void agent_follow(struct lease_agent *agent);

/* What the speaker left is followed when the next one leaves something else. At most once a second;
 * with `now`, at once. Looks at agent.json, and reads it only where it is another one. */
void agent_follow_configuration(struct lease_agent *agent, bool now);

/* The directory has vanished: makes and opens it anew. */
int agent_find_directory_again(struct lease_agent *agent);

/* ask.c */
int agent_check(const struct lease_agent *agent); /* LEASE_EFORK, LEASE_EINVAL */
void agent_request_id(struct request_id *id);

/* keeper.c */
void keeper_stop(struct lease_agent *agent);

/* Looks after a lease from now on; LEASE_EFULL. */
int keeper_add(struct lease_agent *agent, const struct held *held, ns_t now);
/* Its lease went over to dispatched, and `named`: by the word of an owner on another host. */
void keeper_dispatched(struct lease_agent *agent, struct lease_id id, uint32_t ttl_ms, bool named,
                       ns_t now);
/* The cell where it lies, UINT32_MAX where it is not ours; *id becomes the one that it has now.
 * keeper_remove looks after it no longer. */
uint32_t keeper_remove(struct lease_agent *agent, struct lease_id *id);
uint32_t keeper_resolve(struct lease_agent *agent, struct lease_id *id);

/* speaker.c */

/* Tries to become the one that speaks for this host. 0, or LEASE_EDAEMON (a daemon does), or
 * LEASE_EBUSY (an embedded agent does, and was asked to yield where we are a daemon), or why the
 * office cannot be had at all: LEASE_EIO, LEASE_ENOSPC, LEASE_EPERM, LEASE_ENOMEM. */
int speaker_start(struct lease_agent *agent, char *error, size_t error_size);
void speaker_stop(struct lease_agent *agent);

#endif
