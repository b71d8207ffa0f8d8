/* Writes what the fuzzers begin with, a folder for each: the examples of the wire's manual, what
 * servers answered, and what people and speakers write. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/probe_seed.h"
#include "tests/lib/example.h"
#include "tests/lib/recorded.h"

static const char *root;
static char text[1 << 20];

static void put(const char *folder, unsigned number, const void *bytes, size_t size)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", root, folder);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        perror(path);
        exit(1);
    }
    (void)snprintf(path, sizeof path, "%s/%s/seed-%03u", root, folder, number);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

static void put_texts(const char *folder, const char *const *texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put(folder, (unsigned)i, texts[i], strlen(texts[i]));
}
#define PUT_TEXTS(folder, texts) put_texts(folder, texts, sizeof(texts) / sizeof(texts)[0])

/* ---- the wire -------------------------------------------------------------------------------- */

static unsigned write_wire(void)
{
    static uint8_t bytes[EXAMPLE_MAX];
    static const char beacon[] = "LSHB\1\0\x16\x8b"
                                 "0123456789abcdef\xc0\xa8\0\4";
    unsigned n = 0;
    for (size_t size; (size = example_read(n, bytes)) > 0; n++) {
        put("message", n, bytes, size);
        put("gossip", n, bytes, size);
        put("beacon", n, bytes, size);
    }
    put("beacon", n, beacon, sizeof beacon - 1);
    return n;
}

/* ---- what servers answer --------------------------------------------------------------------- */

/* SCENE.QUESTION.json: the path that the question asks. */
static const struct {
    const char *name, *path;
} questions[] = {{".props.", "/props"},
                 {".slots.", "/slots"},
                 {".metrics.", "/metrics"},
                 {".v1models.", "/v1/models"},
                 {".health.", "/health"},
                 {".load.", "/load"},
                 {".loads.", "/v1/loads"},
                 {".get_load.", "/get_load"},
                 {".info.", "/info"},
                 {".running.", "/running"},
                 {".hardware.", "/api/hardware"},
                 {".ps.", "/api/ps"},
                 {".tags.", "/api/tags"},
                 {".models.", "/api/v1/models"},
                 {".v0models.", "/api/v0/models"},
                 {".run.", ""}};

static char status_letter(int status)
{
    switch (status) {
    case 404: return PROBE_SEED_404;
    case 401: return PROBE_SEED_401;
    case 503: return PROBE_SEED_503;
    case 500: return PROBE_SEED_500;
    default: return PROBE_SEED_200;
    }
}

static size_t add_body(size_t used, const struct recorded *one)
{
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        if (!strstr(one->name, questions[i].name) || one->size > sizeof text - used - 256)
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%c%c%s\n", PROBE_SEED_BODY,
                                 status_letter(one->status), questions[i].path);
        memcpy(text + used, one->body, one->size);
        return used + one->size;
    }
    return used;
}

static size_t scene_length(const struct recorded *one)
{
    const char *slash = strrchr(one->name, '/'), *name = slash ? slash + 1 : one->name;
    return (size_t)(name - one->name) + strcspn(name, ".");
}

static unsigned write_engine(const char *folder, char engine, unsigned number)
{
    static struct recorded all[RECORDED_MAX];
    size_t count = recorded_load(folder, all), size = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length = scene_length(&all[i]);
        bool begins = i == 0 || length != scene_length(&all[i - 1]) ||
                      strncmp(all[i].name, all[i - 1].name, length) != 0;
        if (begins && size > 2)
            put("probe", number++, text, size);
        if (begins) {
            text[0] = engine;
            text[1] = (char)(PROBE_SEED_FULL | PROBE_SEED_MODEL);
            size = 2;
        }
        size = add_body(size, &all[i]);
        if (strstr(all[i].name, ".metrics."))
            put("metrics", number * 1000 + (unsigned)i, all[i].body, all[i].size);
    }
    if (size > 2)
        put("probe", number++, text, size);
    while (count > 0)
        free(all[--count].body);
    return number;
}

static void write_bodies(void)
{
    static const struct {
        const char *folder;
        char engine;
    } engines[] = {{"llama.cpp", PROBE_SEED_LLAMA}, {"vllm", PROBE_SEED_VLLM},
                   {"sglang", PROBE_SEED_SGLANG},   {"tgi", PROBE_SEED_TGI},
                   {"llama-swap", PROBE_SEED_SWAP}, {"llama-skein", PROBE_SEED_SWAP},
                   {"ollama", PROBE_SEED_OLLAMA},   {"lmstudio", PROBE_SEED_LMSTUDIO},
                   {"exec", PROBE_SEED_EXEC},       {"llama-swap", PROBE_SEED_DETECT},
                   {"vllm", PROBE_SEED_DETECT},     {"tgi", PROBE_SEED_DETECT}};
    unsigned number = 0;
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
        number = write_engine(engines[i].folder, engines[i].engine, number);
}

/* ---- what people write ----------------------------------------------------------------------- */

static void write_sample(void)
{
    FILE *file = fopen(CONFIG_SAMPLE, "rb");
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (!file || size == 0) {
        perror(CONFIG_SAMPLE);
        exit(1);
    }
    (void)fclose(file);
    put("config", 900, text, size);
}

static void write_words(void)
{
    static const char *const configs[] = {
        "provider a = http://h:1\npool p = a, a\nname = \"x # y\"\nbeacon = yes\n",
        "provider\n    a = 'static:1'\n    b = exec:x --y\npool\n    p = a b\nlisten = tcp://*\n",
        "\xef\xbb\xbfhttp = 127.0.0.1:1\r\nunknown = 1\n    below = 2\npeer = tcp://h,name=z\n"};
    static const char *const specs[] = {
        "z4=http://127.0.0.1:8080",
        "m5=llama.cpp+https://[::1]:8081/a/v1,slots=2,model=m,group=g:2,own=no,key-file=/k",
        "spare=static:4,own=yes,url=http://x/y", "e=slots=3,exec:/bin/x --a,b=c",
        "v=vllm+http://h,slots=8,model=a/b"};
    static const char *const words[] = {
        "z4:mfrggzdfmztwq2lkmfrggzdfme",
        "1.5h",
        "200ms",
        "tcp://[::1]:5771",
        "tcp://*",
        "--ttl\n10s\n--wait=5m\n-E\n99\nz4,m5\n--\nrun\n--it",
        "--provider\nz4=static:1\n--peer\ntcp://h\n--json\n--units\n2\n--slot\n0\n--require\nowner",
        "--on-lost\nkill\n--nested\nshare\n--label\nx\n--pid\n1\n--dir\n/d\n--since\n5m\n-h"};
    static const char *const filters[] = {
        "state:free\n3\nz4\nz4\nm5\npython@m5\nqwen\nlabel\nz4:mf",
        "!state:held provider:z* *x?\n4\nz4\nz4\nm5\npython@m5",
        "host:m5 label:a pid:52 id:z4* reach:host\n5\nz4\nz4\nm5\nwho\nm\na\nz4:mf",
        "model:qwen health:ok signal:exact engine:vllm group:g owner:m5 holder:py any\n7"};
    PUT_TEXTS("config", configs);
    PUT_TEXTS("spec", specs);
    PUT_TEXTS("words", words);
    PUT_TEXTS("filter", filters);
    write_sample();
}

/* ---- what lies in the runtime directory ------------------------------------------------------ */

static void write_files(void)
{
    static const char *const routes[] = {
        "{\"schema\":1,\"endpoint\":\"tcp://10.0.0.4:5771\",\"publish\":\"tcp://10.0.0.4:5772\","
        "\"warning\":\"\",\"peers\":[{\"name\":\"z4\",\"id\":\"00112233445566778899aabbccddeeff\","
        "\"version\":\"0.1.0\",\"endpoint\":\"tcp://10.0.0.5:5771\",\"heard_ns\":123456789,"
        "\"same_name\":false}],\"routes\":[{\"provider\":\"z4\",\"owner\":\"z4\",\"endpoint\":"
        "\"tcp://10.0.0.5:5771\",\"url\":\"http://10.0.0.5:8080\",\"epoch\":17,\"conflicts\":1,"
        "\"heard_ns\":123456789}]}",
        "{\"peers\":[{\"name\":\"a\\u0001\\u200e\"},{},7],\"routes\":[{\"provider\":\"b\"}]}"};
    static const char *const effective[] = {
        "{\"schema\":1,\"name\":\"m5\",\"version\":\"0.1.0\",\"kind\":\"daemon\",\"pid\":4242,"
        "\"id\":\"00112233445566778899aabbccddeeff\",\"providers\":[\"z4=http://127.0.0.1:8080\","
        "\"spare=static:1\"],\"fleet\":{\"listen\":[\"tcp://10.0.0.4\"],\"peers\":"
        "[\"tcp://[::1]:5771,name=z4\"],\"publish\":\"tcp://10.0.0.4:5772\",\"advertise\":\"\","
        "\"relay\":\"tcp://r:1\",\"insecure\":true}}",
        "{\"name\":7,\"providers\":[\"=\",null,\"a\"],\"fleet\":{\"advertise\":\"tcp://a\"}}"};
    PUT_TEXTS("routes", routes);
    PUT_TEXTS("effective", effective);
}

/* See fuzz_host_file.c: each action by itself, and each after each stage. */
static void write_books(void)
{
    for (unsigned i = 0; i < 36; i++) {
        unsigned char actions[64] = {0};
        size_t size = 0;
        for (unsigned stage = 0; stage < i / 12; stage++, size += 7)
            actions[size] = 10;
        actions[size] = (unsigned char)(i % 12);
        actions[size + 1] = (unsigned char)(8 * i);
        actions[size + 2] = 0x80;
        actions[size + 3] = 2;
        actions[size + 5] = 8;
        memset(actions + size + 6, 0x41, 8);
        put("host_file", i, actions, size + 14);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 64;
    root = argv[1];
    write_bodies();
    write_words();
    write_files();
    write_books();
    return write_wire() == 0;
}
