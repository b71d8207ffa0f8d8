/* /metrics: the same gauges in both versions, under names and helps of their own. */
#include "tests/lib/slotserver_internal.h"

enum value {
    PROMPT_TOKENS,
    PROMPT_CACHED,
    PROMPT_SECONDS,
    PREDICTED_TOKENS,
    PREDICTED_SECONDS,
    DECODES,
    LONGEST,
    NOTHING,
    PROMPT_RATE,
    PREDICTED_RATE,
    PROCESSING,
    DEFERRED,
    BUSY_PER_DECODE,
};

struct metric {
    const char *name, *type, *help;
    enum value value;
};

static const struct metric metrics_new[] = {
    {"prompt_tokens_total", "counter", "Number of prompt tokens processed, excluding cached tokens",
     PROMPT_TOKENS},
    {"prompt_tokens_cached_total", "counter", "Number of prompt tokens reused from the cache",
     PROMPT_CACHED},
    {"prompt_seconds_total", "counter", "Total time spent processing prompts", PROMPT_SECONDS},
    {"tokens_predicted_total", "counter", "Number of generation tokens processed",
     PREDICTED_TOKENS},
    {"tokens_predicted_seconds_total", "counter", "Total time spent generating tokens",
     PREDICTED_SECONDS},
    {"n_decode_total", "counter",
     "Total number of llama_decode() calls, excluding speculative decoding and multimodal decoding",
     DECODES},
    {"n_tokens_max", "counter", "Largest observed sequence length (prompt + generation)", LONGEST},
    {"spec_decode_num_draft_tokens_total", "counter", "Speculative: Total draft tokens generated",
     NOTHING},
    {"spec_decode_num_accepted_tokens_total", "counter",
     "Speculative: Total draft tokens accepted by the target model", NOTHING},
    {"spec_decode_num_drafts_total", "counter",
     "Speculative: Total speculative decoding verification steps", NOTHING},
    {"prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s", PROMPT_RATE},
    {"predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s",
     PREDICTED_RATE},
    {"requests_processing", "gauge", "Number of requests processing", PROCESSING},
    {"requests_deferred", "gauge", "Number of requests deferred", DEFERRED},
    {"n_busy_slots_per_decode", "gauge", "Average number of busy slots per llama_decode() call",
     BUSY_PER_DECODE},
    {0},
};

static const struct metric metrics_old[] = {
    {"prompt_tokens_total", "counter", "Number of prompt tokens processed.", PROMPT_TOKENS},
    {"prompt_seconds_total", "counter", "Prompt process time", PROMPT_SECONDS},
    {"tokens_predicted_total", "counter", "Number of generation tokens processed.",
     PREDICTED_TOKENS},
    {"tokens_predicted_seconds_total", "counter", "Predict process time", PREDICTED_SECONDS},
    {"n_decode_total", "counter", "Total number of llama_decode() calls", DECODES},
    {"n_past_max", "counter", "Largest observed n_past.", LONGEST},
    {"n_busy_slots_per_decode", "counter", "Average number of busy slots per llama_decode() call",
     BUSY_PER_DECODE},
    {"prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s.", PROMPT_RATE},
    {"predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s.",
     PREDICTED_RATE},
    {"requests_processing", "gauge", "Number of requests processing.", PROCESSING},
    {"requests_deferred", "gauge", "Number of requests deferred.", DEFERRED},
    {0},
};

static double per_second(long tokens, int64_t us)
{
    return us > 0 ? 1e6 * (double)tokens / (double)us : 0;
}

static double value_of(const struct engine *engine, enum value value)
{
    switch (value) {
    case PROMPT_TOKENS: return (double)engine->prompt_tokens;
    case PROMPT_SECONDS: return (double)engine->prompt_us / 1e6;
    case PREDICTED_TOKENS: return (double)engine->predicted_tokens;
    case PREDICTED_SECONDS: return (double)engine->predicted_us / 1e6;
    case DECODES: return (double)engine->decodes;
    case LONGEST: return (double)engine->longest;
    case PROMPT_RATE: return per_second(engine->prompt_tokens, engine->prompt_us);
    case PREDICTED_RATE: return per_second(engine->predicted_tokens, engine->predicted_us);
    case PROCESSING: return engine_busy(engine);
    case DEFERRED: return engine->n_deferred;
    case BUSY_PER_DECODE:
        return engine->decodes ? (double)engine->busy_in_decodes / (double)engine->decodes : 0;
    case PROMPT_CACHED:
    case NOTHING: break;
    }
    return 0;
}

void body_metrics(const struct engine *engine, struct text *out)
{
    const struct metric *metric =
        engine->server->version == SLOTSERVER_NEW ? metrics_new : metrics_old;
    for (; metric->name; metric++)
        text_format(out, "# HELP llamacpp:%s %s\n# TYPE llamacpp:%s %s\nllamacpp:%s %.10g\n",
                    metric->name, metric->help, metric->name, metric->type, metric->name,
                    value_of(engine, metric->value));
}
