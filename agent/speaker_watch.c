/* Demands for readings come as changes of a word in shared memory, which no poll can wait for: this
 * thread sleeps on all of them and makes a descriptor readable. */
#define _GNU_SOURCE

#include <signal.h>
#include <unistd.h>

#include "agent/speaker.h"
#include "broker/host_wait.h"

#define LOOK_NS (NS_PER_SEC / 2) /* for books that were opened anew */

static uint32_t collect(struct speaker *speaker, struct host_waited *words)
{
    struct lease_agent *agent = speaker->agent;
    uint32_t news = atomic_load_explicit(&speaker->news, memory_order_acquire), used = 0;
    uint32_t count = atomic_load_explicit(&agent->provider_count, memory_order_acquire);
    words[used++] = (struct host_waited){&speaker->news, news};
    for (uint32_t i = 0; i < count; i++) {
        struct provider *provider = agent->providers[i];
        words[used].word = &provider_words(provider)->demand;
        words[used].seen = atomic_load_explicit(words[used].word, memory_order_acquire);
        used++;
    }
    words[used++] = (struct host_waited){&speaker->stop, 0};
    return used;
}

static void *watch(void *arg)
{
    struct speaker *speaker = arg;
    struct host_waited words[PROVIDERS_MAX + 2];
    while (!atomic_load_explicit(&speaker->stop, memory_order_acquire)) {
        uint32_t count = collect(speaker, words);
        uint64_t one = 1;
        if (host_wait_any(words, count, LOOK_NS) == HOST_WAIT_CHANGED &&
            write(speaker->wake_fd, &one, sizeof one) < 0)
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
