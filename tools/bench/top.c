/* What leasetop costs: 200 providers with 800 leases, looked at once a second.
 *
 * bench_top [PROVIDERS [LEASES_EACH [FRAMES]]]: everything from a snapshot to the bytes of the
 * terminal, with every age another one in each frame. It states times and asserts none. */
#define _GNU_SOURCE
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/screen/fleet.h"
#include "tools/top_batch.h"
#include "tools/top_screen.h"
#include "tools/top_text.h"

static double cpu_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void age(struct lease_fleet *fleet, int frame)
{
    for (uint32_t i = 0; i < fleet->provider_count; i++)
        fleet->providers[i].age_ms = 100 + 37 * frame % 900;
    for (uint32_t i = 0; i < fleet->lease_count; i++)
        fleet->leases[i].left_ms -= 1000 * (frame % 9);
}

struct bench {
    struct top_model model;
    struct top_rows rows;
    struct top_ui ui;
    struct top_grid grid;
};

static void show(struct bench *bench, struct lease_fleet *fleet, int frame)
{
    int64_t now_ns = START + frame * SECOND;
    int width, height;
    fleet_show(&bench->model, fleet, now_ns, true);
    top_screen_size(&width, &height);
    top_grid_resize(&bench->grid, width, height);
    top_rows_make(&bench->rows, &bench->model, &bench->ui.wish, now_ns);
    struct top_scene scene = {&bench->model, &bench->rows, &bench->ui, now_ns, "12:04:31"};
    top_view_draw(&scene, &bench->grid);
    top_screen_show(&bench->grid);
}

/* CPU milliseconds of one JSON frame. */
static double json_ms(struct bench *bench)
{
    struct top_frame frame = {.model = &bench->model, .rows = &bench->rows, .filter = ""};
    double before = cpu_ms();
    for (int i = 0; i < 10; i++)
        free(top_batch_json(&frame));
    return (cpu_ms() - before) / 10;
}

static int number(int argc, char **argv, int at, int usual)
{
    int value = argc > at ? atoi(argv[at]) : usual;
    return value > 0 ? value : usual;
}

int main(int argc, char **argv)
{
    int providers = number(argc, argv, 1, 200), leases = number(argc, argv, 2, 4);
    int frames = number(argc, argv, 3, 200);
    struct bench bench = {0};
    char why[256];
    FILE *out = tmpfile(), *in = fopen("/dev/null", "r");
    setlocale(LC_CTYPE, "C.UTF-8");
    top_text_use_utf8(true);
    if (!out || !in || !top_screen_open("xterm-256color", out, in, true, why, sizeof why))
        return 1;
    top_screen_pretend(120, 50);
    top_model_init(&bench.model);
    top_ui_init(&bench.ui);
    double before = cpu_ms(), made = 0;
    for (int i = 0; i < frames; i++) {
        double start = cpu_ms();
        struct lease_fleet *fleet = fleet_large((uint32_t)providers, (uint32_t)leases);
        age(fleet, i);
        made += cpu_ms() - start;
        show(&bench, fleet, i);
    }
    double frame_ms = (cpu_ms() - before - made) / frames;
    long bytes = ftell(out);
    top_screen_close();
    printf("%d providers, %d leases, 120x50: %.3f ms of CPU a frame (%.2f %% of a core at 1 s), "
           "%ld bytes a frame; JSON %.3f ms a frame\n",
           providers, providers * leases, frame_ms, frame_ms / 10, bytes / frames, json_ms(&bench));
    top_grid_free(&bench.grid);
    top_rows_free(&bench.rows);
    top_ui_free(&bench.ui);
    top_model_free(&bench.model);
    fclose(out);
    fclose(in);
    return 0;
}
