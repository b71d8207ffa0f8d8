/* The bench of truth: how often the book is wrong about a server, in virtual time.
 *
 * Says go and the request queues, says no and a slot stands idle: counted against a simulated server
 * that knows (tests/lib/truth.h, which has the formula too). Needs no server and no clock; the same
 * seed prints the same figures. Exit status 1: it was wrong where leases are all there is, and the
 * readings no older than they are allowed to be. */
#define _GNU_SOURCE

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/limits.h"
#include "tests/lib/truth.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const char *const signals[] = {"names", "counts", "inferred", "none"};
static const int32_t slot_counts[] = {1, 4, 16};
static const uint32_t ages[] = {0, 20, 100, 1000};
static const uint32_t settles[] = {50, 100, 500, 10000};
static const double stranger_rates[] = {0, 0.2};

/* What the figures are like where nothing else is said. */
static const struct truth_run usual = {
    .slots = 4,
    .leases = 0.4,
    .strangers = 0.2,
    .burst = 1,
    .max_age_ms = MAX_AGE_MS,
    .settle_ms = SETTLE_NAMES_MS,
    .arrival_ms = 10,
    .read_ms = 4,
};

/* Everything of a server or a client that is not as one would wish. */
static const struct trouble {
    const char *what;
    struct truth_run is; /* what differs; 0: as usual */
} troubles[] = {
    {"as usual", {0}},
    {"requests come in bursts of up to 7", {.burst = 4}},
    {"a request is 200 ms on its way", {.arrival_ms = 200}},
    {"a reading takes up to 50 ms", {.read_ms = 50}},
    {"its gauges are 50 ms late", {.lag_ms = 50}},
    {"its gauges are 500 ms late", {.lag_ms = 500}},
    {"it shows strangers at once, ours up to 4 s late", {.hidden_ms = 4000}},
    {"its gauges stand still for up to 2 s, 6 times a minute", {.blind = 0.1, .blind_ms = 2000}},
    {"3 in 10 requests take less than 30 ms", {.early = 0.3}},
    {"1 lease in 10 sends nothing, for up to 5 s", {.idle = 0.1}},
    {"1 client in 10 dies, its work goes on", {.dies = 0.1}},
    {"it does not tell its queue", {.hides_queue = true}},
    {"it gets its pauses", {.pauses = true}},
};

struct bench {
    uint64_t seed;
    double seconds; /* of virtual time a figure, divided by the slots */
    bool json, wrong;
    uint32_t rows;
};

static double percent(double of, uint64_t all)
{
    return all ? 100 * of / (double)all : 0;
}

static void print_json(struct bench *bench, const struct truth_run *run, const char *what,
                       const struct truth_score *score)
{
    printf("%s\n  {\"what\": \"%s\", \"signal\": \"%s\", \"slots\": %d, \"leases_per_s_slot\": %g, "
           "\"strangers_per_s_slot\": %g, \"burst\": %u, \"max_age_ms\": %u, \"settle_ms\": %u, "
           "\"arrival_ms\": %u, \"go\": %llu, \"no\": %llu, \"undecided\": %llu, \"found_free\": "
           "%llu, \"false_go\": %llu, \"false_no\": %llu, \"false_go_explained\": ",
           bench->rows++ ? "," : "", what, signals[run->signal], (int)run->slots, run->leases,
           run->strangers, run->burst, run->max_age_ms, run->settle_ms, run->arrival_ms,
           (unsigned long long)score->gos, (unsigned long long)score->nos,
           (unsigned long long)score->undecided, (unsigned long long)score->found,
           (unsigned long long)score->false_go, (unsigned long long)score->false_no);
    if (score->explained < 0)
        printf("null}");
    else
        printf("%.2f}", score->explained);
}

/* One figure; a row of the JSON. */
static struct truth_score measure(struct bench *bench, const struct truth_run *what_run,
                                  const char *what)
{
    struct truth_run run = *what_run;
    struct truth_score score;
    run.seconds = bench->seconds / run.slots;
    truth_simulate(&run, bench->seed, &score);
    if (bench->json)
        print_json(bench, &run, what, &score);
    return score;
}

/* ---- no strangers ------------------------------------------------------------------------------ */

/* Names and counts at every setting; where leases alone decide, none of them matters. */
static uint32_t settings_of(enum truth_signal signal)
{
    return signal >= TRUTH_INFERRED ? 1 : COUNT(ages) * COUNT(settles);
}

static struct truth_run with_setting(enum truth_signal signal, uint32_t i)
{
    struct truth_run run = usual;
    run.signal = signal;
    run.max_age_ms = ages[i % COUNT(ages)];
    run.settle_ms = settles[i / COUNT(ages)];
    return run;
}

static void alone(struct bench *bench)
{
    if (!bench->json)
        printf("Without strangers, all settings together, bursts of up to 7: false go and false no "
               "of so many requests.\n\n"
               "| signal | 1 slot | 4 slots | 16 slots |\n|---|---|---|---|\n");
    for (int signal = 0; signal < (int)COUNT(signals); signal++) {
        char row[256] = "";
        for (size_t s = 0; s < COUNT(slot_counts); s++) {
            uint64_t all = 0, gos = 0, nos = 0;
            for (uint32_t i = 0; i < settings_of((enum truth_signal)signal); i++) {
                struct truth_run run = with_setting((enum truth_signal)signal, i);
                run.strangers = stranger_rates[0];
                run.slots = slot_counts[s];
                run.burst = 4;
                struct truth_score score = measure(bench, &run, "alone");
                all += score.gos + score.nos;
                gos += score.false_go;
                nos += score.false_no;
                if (run.max_age_ms <= MAX_AGE_MS && (score.false_go || score.false_no))
                    bench->wrong = true;
            }
            size_t used = strlen(row);
            snprintf(row + used, sizeof row - used, " %llu / %llu of %llu |",
                     (unsigned long long)gos, (unsigned long long)nos, (unsigned long long)all);
        }
        if (!bench->json)
            printf("| %s |%s\n", signals[signal], row);
    }
}

/* ---- strangers --------------------------------------------------------------------------------- */

static void print_cell(const struct truth_score *score)
{
    printf(" %.2f", percent((double)score->false_go, score->gos));
    if (score->explained >= 0)
        printf(" (%.2f)", percent(score->explained, score->gos));
    printf(" / %.2f", percent((double)score->false_no, score->found));
    uint64_t all = score->gos + score->nos + score->undecided;
    if (score->undecided)
        printf(", %.0f undecided", percent((double)score->undecided, all));
    printf(" |");
}

static void setting_row(struct bench *bench, int32_t slots, enum truth_signal signal,
                        uint32_t first)
{
    bool told = signal < TRUTH_INFERRED;
    if (!bench->json && told)
        printf("| %d | %s | %u |", (int)slots, signals[signal], settles[first / COUNT(ages)]);
    else if (!bench->json)
        printf("| %d | %s | |", (int)slots, signals[signal]);
    for (uint32_t i = first; i < first + COUNT(ages); i++) {
        struct truth_run run = with_setting(signal, i);
        run.slots = slots;
        if (!told && i > first) {
            if (!bench->json)
                printf(" |");
            continue;
        }
        struct truth_score score = measure(bench, &run, "strangers");
        if (!bench->json)
            print_cell(&score);
    }
    if (!bench->json)
        printf("\n");
}

static void with_strangers(struct bench *bench)
{
    if (!bench->json) {
        printf(
            "\nStrangers, %g a second and slot: false go in %% of all goes (what the window "
            "explains) / false no in %% of the requests that found a slot free; by max_age_ms.\n\n"
            "| slots | signal | settle_ms |",
            stranger_rates[1]);
        for (size_t a = 0; a < COUNT(ages); a++)
            printf(" %u |", ages[a]);
        printf("\n|---|---|---|---|---|---|---|\n");
    }
    for (size_t s = 0; s < COUNT(slot_counts); s++)
        for (int signal = 0; signal < (int)COUNT(signals); signal++)
            for (uint32_t i = 0; i < settings_of((enum truth_signal)signal); i += COUNT(ages))
                setting_row(bench, slot_counts[s], (enum truth_signal)signal, i);
}

/* ---- trouble ----------------------------------------------------------------------------------- */

static struct truth_run with_trouble(const struct truth_run *is)
{
    struct truth_run run = usual;
    run.burst = is->burst ? is->burst : usual.burst;
    run.arrival_ms = is->arrival_ms ? is->arrival_ms : usual.arrival_ms;
    run.read_ms = is->read_ms ? is->read_ms : usual.read_ms;
    run.lag_ms = is->lag_ms;
    run.hidden_ms = is->hidden_ms;
    run.blind = is->blind;
    run.blind_ms = is->blind_ms;
    run.early = is->early;
    run.idle = is->idle;
    run.dies = is->dies;
    run.hides_queue = is->hides_queue;
    run.pauses = is->pauses;
    return run;
}

static void in_trouble(struct bench *bench)
{
    if (!bench->json)
        printf("\nThe same for 4 slots, as the settings come (max_age_ms %d; settle_ms %d with "
               "names, %d with counts), and what else may be.\n\n"
               "| | names, no strangers | counts, no strangers | names, strangers | counts, "
               "strangers |\n|---|---|---|---|---|\n",
               MAX_AGE_MS, SETTLE_NAMES_MS, SETTLE_COUNTS_MS);
    for (size_t t = 0; t < COUNT(troubles); t++) {
        if (!bench->json)
            printf("| %s |", troubles[t].what);
        for (size_t i = 0; i < 4; i++) {
            struct truth_run run = with_trouble(&troubles[t].is);
            run.strangers = stranger_rates[i / 2];
            run.signal = i % 2 ? TRUTH_COUNTS : TRUTH_NAMES;
            run.settle_ms = i % 2 ? SETTLE_COUNTS_MS : SETTLE_NAMES_MS;
            struct truth_score score = measure(bench, &run, troubles[t].what);
            if (!bench->json)
                print_cell(&score);
        }
        if (!bench->json)
            printf("\n");
    }
}

/* ---- the program ------------------------------------------------------------------------------- */

static int usage(int status)
{
    fprintf(status ? stderr : stdout,
            "Usage: bench_truth [--seed N] [--seconds S] [--quick] [--json]\n"
            "How often the book is wrong about a server, in virtual time: a Markdown table.\n"
            "S: virtual seconds a figure and slot (100000); --quick: 2000 of them.\n");
    return status;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'}, {"seconds", required_argument, NULL, 't'},
        {"quick", no_argument, NULL, 'q'},      {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};
    struct bench bench = {.seed = 1, .seconds = 100000};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's': bench.seed = strtoull(optarg, NULL, 10); break;
        case 't': bench.seconds = strtod(optarg, NULL); break;
        case 'q': bench.seconds = 2000; break;
        case 'j': bench.json = true; break;
        case 'h': return usage(0);
        default: return usage(2);
        }
    }
    if (optind < argc || !(bench.seconds > 0 && bench.seconds <= 1e8))
        return usage(2);
    if (bench.json)
        printf("{\"schema\": 1, \"seed\": %llu, \"rows\": [", (unsigned long long)bench.seed);
    alone(&bench);
    with_strangers(&bench);
    in_trouble(&bench);
    if (bench.json)
        printf("\n]}\n");
    if (bench.wrong)
        fprintf(stderr, "bench_truth: wrong without strangers: that must not be\n");
    return bench.wrong;
}
