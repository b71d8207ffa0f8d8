/* The effective configuration: written whole, read with suspicion. */
#define _GNU_SOURCE

#include "tests/lib/check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "agent/effective.h"
#include "broker/error.h"
#include "tests/lib/temp_dir.h"

static char directory[TEMP_DIR_MAX];
static struct effective written, got;

static int setup(void **state)
{
    (void)state;
    assert_true(temp_dir_make(directory));
    memset(&written, 0, sizeof written);
    memset(&got, 0, sizeof got);
    strcpy(written.name, "z4");
    strcpy(written.kind, "daemon");
    strcpy(written.version, "0.1.0");
    written.pid = 4242;
    for (uint8_t i = 0; i < 16; i++)
        written.id[i] = (uint8_t)(i * 17);
    strcpy(written.providers[0].text, "z4=http://127.0.0.1:8080,slots=2");
    strcpy(written.providers[1].text, "z4b=static:3");
    written.provider_count = 2;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_dir_remove(directory);
    return 0;
}

static void path_of(char *path, size_t size)
{
    snprintf(path, size, "%s/" EFFECTIVE_FILE, directory);
}

static void write_bytes(const char *bytes, size_t size)
{
    char path[TEMP_DIR_MAX + 32];
    path_of(path, sizeof path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    assert_int_equal(effective_write(directory, &written, 0600), 0);
    assert_int_equal(effective_read(directory, &got), 0);
    assert_memory_equal(&got, &written, sizeof got);
    struct stat status;
    char path[TEMP_DIR_MAX + 32];
    path_of(path, sizeof path);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
}

static void a_provider_is_found_by_its_whole_name(void **state)
{
    (void)state;
    char text[EFFECTIVE_SPEC_SIZE];
    assert_int_equal(effective_write(directory, &written, 0600), 0);
    assert_int_equal(effective_find(directory, "z4b", text), 0);
    assert_string_equal(text, "z4b=static:3");
    assert_int_equal(effective_find(directory, "z4", text), 0);
    assert_string_equal(text, "z4=http://127.0.0.1:8080,slots=2");
    assert_int_equal(effective_find(directory, "z", text), LEASE_EUNKNOWN);
}

static void nothing_there_is_told_apart_from_garbage(void **state)
{
    (void)state;
    assert_int_equal(effective_read(directory, &got), LEASE_EABSENT);
    write_bytes("{\"pid\":", 7);
    assert_int_equal(effective_read(directory, &got), LEASE_EDAMAGED);
    write_bytes("[]", 2);
    assert_int_equal(effective_read(directory, &got), LEASE_EDAMAGED);
}

static void every_cut_and_wrong_type_is_survived(void **state)
{
    (void)state;
    assert_int_equal(effective_write(directory, &written, 0600), 0);
    char path[TEMP_DIR_MAX + 32], whole[4096];
    path_of(path, sizeof path);
    FILE *file = fopen(path, "r");
    size_t size = fread(whole, 1, sizeof whole, file);
    fclose(file);
    for (size_t cut = 0; cut < size - 1; cut++) {
        write_bytes(whole, cut);
        assert_true(effective_read(directory, &got) < 0);
    }
    const char wrong[] =
        "{\"pid\":-1,\"name\":7,\"id\":\"zz\",\"providers\":[1,null,\"x=static:1\",{}]}";
    write_bytes(wrong, sizeof wrong - 1);
    assert_int_equal(effective_read(directory, &got), 0);
    assert_int_equal(got.pid, 0);
    assert_string_equal(got.name, "");
    assert_int_equal(got.provider_count, 1);
}

static void a_link_or_a_pipe_is_refused(void **state)
{
    (void)state;
    char path[TEMP_DIR_MAX + 32];
    path_of(path, sizeof path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_true(effective_read(directory, &got) < 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(effective_read(directory, &got), LEASE_EDAMAGED);
}

static void a_failed_write_leaves_the_old_one(void **state)
{
    (void)state;
    assert_int_equal(effective_write("/proc/nowhere", &written, 0600), LEASE_EIO);
    assert_int_equal(effective_write(directory, &written, 0600), 0);
    written.pid = 1;
    assert_int_equal(effective_write(directory, &written, 0600), 0);
    assert_int_equal(effective_read(directory, &got), 0);
    assert_int_equal(got.pid, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read),
        TEST(a_provider_is_found_by_its_whole_name),
        TEST(nothing_there_is_told_apart_from_garbage),
        TEST(every_cut_and_wrong_type_is_survived),
        TEST(a_link_or_a_pipe_is_refused),
        TEST(a_failed_write_leaves_the_old_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
