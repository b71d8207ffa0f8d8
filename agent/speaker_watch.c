/* Demands for readings come as changes of a word in shared memory, which no poll can wait for: this
 * thread sleeps on all of them and makes a descriptor readable. */
#define _GNU_SOURCE

#include <signal.h>
#include <unistd.h>

#include "agent/speaker.h"
#include "broker/host_wait.h"

#define LOOK_NS (NS_PER_SEC / 2) /* for books that were opened anew */
#define REST_NS (5 * NS_PER_MS)  /* between two looks at books that change */
#define MORE_NS (20 * NS_PER_MS) /* where there are more words than can be slept on */

struct watch {
    struct host_waited words[HOST_WAIT_MAX];
    uint32_t count;
    uint32_t seen[KNOWN_MAX]; /* of the books, when the loop was last told of changes */
    uint32_t demands;         /* of the words, those before the books */
    bool changed;             /* a book has changed since */
    bool news;                /* and the loop does not know it */
    bool more;                /* books that are looked at, not slept on */
};

static bool watches(const struct speaker *speaker, enum speaker_watches what)
{
    return atomic_load_explicit(&speaker->watches, memory_order_relaxed) >= (unsigned)what;
}

/* Of a provider that nobody declared here readings are taken elsewhere. */
static void add_demand(struct watch *watch, const struct provider *provider,
                       struct host_words *words)
{
    if (!provider_spec(provider))
        return;
    struct host_waited *word = &watch->words[watch->count++];
    word->word = &words->demand;
    word->seen = atomic_load_explicit(word->word, memory_order_acquire);
}

/* The change word too, with its bit set. What the loop has changed itself, or seen already, is no news to
 * it. */
static void add_change(struct watch *watch, struct host_words *words, uint32_t *seen,
                       uint32_t looked, bool closely)
{
    uint32_t armed;
    bool more = watch->count == HOST_WAIT_MAX;
    watch->more = watch->more || more;
    if (more ? !host_words_differ(words, *seen) : host_words_arm(words, *seen, &armed)) {
        if (!more)
            watch->words[watch->count++] = (struct host_waited){&words->change, armed};
        return;
    }
    *seen = atomic_load_explicit(&words->change, memory_order_acquire);
    watch->changed = true;
    watch->news = watch->news || closely || (*seen & ~1u) != looked;
}

static void collect(struct speaker *speaker, struct watch *watch, bool books)
{
    struct lease_agent *agent = speaker->agent;
    uint32_t news = atomic_load_explicit(&speaker->news, memory_order_acquire);
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    bool closely = watches(speaker, SPEAKER_WATCHES_CLOSELY);
    watch->words[0] = (struct host_waited){&speaker->news, news};
    watch->count = 1;
    watch->changed = watch->news = watch->more = false;
    for (uint32_t i = 0; i < count; i++)
        add_demand(watch, agent->providers[i], provider_words(agent->providers[i]));
    watch->words[watch->count++] = (struct host_waited){&speaker->stop, 0};
    watch->demands = watch->count;
    for (uint32_t i = 0; books && i < count; i++) {
        uint32_t looked = atomic_load_explicit(&speaker->looked[i], memory_order_acquire);
        add_change(watch, provider_words(agent->providers[i]), &watch->seen[i], looked, closely);
    }
}

/* Changes of books are told of when they are collected. */
static bool is_demanded(const struct watch *watch)
{
    for (uint32_t i = 0; i < watch->demands; i++)
        if (atomic_load_explicit(watch->words[i].word, memory_order_acquire) !=
            watch->words[i].seen)
            return true;
    return false;
}

/* Books change often, and those who change them are not to wake us each time: it is rested between two
 * looks, unless somebody waits for a book. */
static void *watch(void *arg)
{
    struct speaker *speaker = arg;
    struct watch watch = {.count = 0};
    bool rests = false;
    while (!atomic_load_explicit(&speaker->stop, memory_order_acquire)) {
        bool books = watches(speaker, SPEAKER_WATCHES_BOOKS) && !rests;
        collect(speaker, &watch, books);
        uint64_t one = 1;
        if (!watch.changed)
            host_wait_any(watch.words, watch.count,
                          rests        ? REST_NS
                          : watch.more ? MORE_NS
                                       : LOOK_NS);
        rests = watch.changed && !watches(speaker, SPEAKER_WATCHES_CLOSELY);
        if ((watch.news || is_demanded(&watch)) && write(speaker->wake_fd, &one, sizeof one) < 0)
            continue; /* readable already */
    }
    return NULL;
}

int speaker_watch_start(struct speaker *speaker)
{
    speaker->watcher_runs = pthread_create(&speaker->watcher, NULL, watch, speaker) == 0;
    return speaker->watcher_runs ? 0 : LEASE_ENOMEM;
}

/* speaker->stop is set. */
void speaker_watch_stop(struct speaker *speaker)
{
    host_wake(&speaker->stop, HOST_WAIT_ANY);
    if (speaker->watcher_runs)
        pthread_join(speaker->watcher, NULL);
    speaker->watcher_runs = false;
}
