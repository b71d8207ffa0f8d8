/* Any bytes as metrics: nothing is read beyond them, and what is taken is finite. */
#include "agent/probe_metrics.h"
#include "tests/fuzz/fuzz.h"

static const char *const names[] = {"a", "vllm:num_requests_running", "tgi_queue_size"};

static void read_all(const char *text)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct metric metric = {.series = -1};
        int count = probe_metric(text, names[i]);
        must(count >= -1 && count <= 1000000000);
        if (!probe_metric_read(text, names[i], "priority", &metric)) {
            must(metric.series == -1);
            continue;
        }
        must(metric.series >= 1 && metric.smallest <= metric.largest);
        must(metric.sum - metric.sum == 0); /* finite */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = fuzz_text(bytes, size);
    read_all(text);
    free(text);
    return 0;
}
