#include "broker/log.h"

#include <string.h>

#include "tests/lib/check.h"

static struct log_entry entry;

static int begin(void **state)
{
    (void)state;
    static struct note note = {.kind = NOTE_LAPSED, .lease = {7, 9}, .pid = 4242, .value = 3};
    text_copy(note.host, sizeof note.host, "m5");
    text_copy(note.label, sizeof note.label, "subagent/7");
    log_entry_fill(&entry, &note, 12, 34);
    return 0;
}

static void an_entry_says_what_happened(void **state)
{
    (void)state;
    assert_true(log_entry_is_valid(&entry));
    assert_int_equal(entry.seq, 12);
    assert_int_equal(entry.at_ns, 34);
    assert_int_equal(entry.kind, NOTE_LAPSED);
    assert_int_equal(entry.pid, 4242);
    assert_int_equal(entry.value, 3);
    assert_string_equal(entry.host, "m5");
    assert_string_equal(entry.label, "subagent/7");
}

/* Whoever was killed while writing, or while another one read, shows. */
static void any_torn_byte_shows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof entry; i++) {
        struct log_entry torn = entry;
        ((unsigned char *)&torn)[i] ^= 0x40;
        if (log_entry_is_valid(&torn))
            fail_msg("byte %u was changed and nothing showed", (unsigned)i);
    }
}

static void a_file_full_of_nothing_is_no_entry(void **state)
{
    (void)state;
    memset(&entry, 0, sizeof entry);
    assert_false(log_entry_is_valid(&entry));
    memset(&entry, 0xff, sizeof entry);
    assert_false(log_entry_is_valid(&entry));
}

/* A check that fits is no promise: another version may have sealed it. */
static void a_kind_that_is_none_is_no_entry(void **state)
{
    (void)state;
    entry.kind = NOTE_KINDS;
    entry.check = words_check(&entry, offsetof(struct log_entry, check));
    assert_false(log_entry_is_valid(&entry));
}

static void long_text_is_cut_and_ended(void **state)
{
    (void)state;
    struct note note = {.kind = NOTE_WENT};
    memset(note.host, 'h', NAME_CHARS_MAX);
    memset(note.label, 'l', LABEL_BYTES_MAX);
    log_entry_fill(&entry, &note, 1, 1);
    assert_true(log_entry_is_valid(&entry));
    assert_int_equal(strlen(entry.host), LOG_HOST_SIZE - 1);
    assert_int_equal(strlen(entry.label), LOG_LABEL_SIZE - 1);
}

/* Each bit of each word counts, and so do their order and number. */
static void the_check_sees_every_bit(void **state)
{
    (void)state;
    uint64_t words[9] = {0};
    uint64_t zero = words_check(words, sizeof words);
    assert_int_not_equal(zero, 0);
    assert_int_not_equal(zero, words_check(words, sizeof words - 8));
    for (unsigned bit = 0; bit < 9 * 64; bit++) {
        words[bit / 64] = UINT64_C(1) << bit % 64;
        assert_true(words_check(words, sizeof words) != zero);
        words[bit / 64] = 0;
    }
    uint64_t one[8] = {1, 2, 3, 4, 5, 6, 7, 8}, swapped[8] = {5, 2, 3, 4, 1, 6, 7, 8};
    assert_true(words_check(one, sizeof one) != words_check(swapped, sizeof swapped));
}

/* The newest number stands in a file that anybody may have written. */
static void any_last_number_is_copied_to_an_end(void **state)
{
    (void)state;
    static struct log_entry ring[LOG_ENTRIES], copy[LOG_ENTRIES];
    assert_int_equal(log_copy(ring, UINT64_MAX, 0, copy), 0);
    assert_int_equal(log_copy(ring, UINT64_MAX, UINT64_MAX, copy), 0);
    assert_int_equal(log_copy(ring, 0, 0, copy), 0);
    assert_int_equal(log_copy(ring, 5, 9, copy), 0);
    struct note note = {.kind = NOTE_WENT};
    log_entry_fill(&ring[UINT64_MAX % LOG_ENTRIES], &note, UINT64_MAX, 1);
    assert_int_equal(log_copy(ring, UINT64_MAX, 0, copy), 1);
    assert_int_equal(log_copy(ring, UINT64_MAX, UINT64_MAX - 1, copy), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_last_number_is_copied_to_an_end),
        cmocka_unit_test_setup(an_entry_says_what_happened, begin),
        cmocka_unit_test_setup(any_torn_byte_shows, begin),
        cmocka_unit_test_setup(a_file_full_of_nothing_is_no_entry, begin),
        cmocka_unit_test_setup(a_kind_that_is_none_is_no_entry, begin),
        cmocka_unit_test_setup(long_text_is_cut_and_ended, begin),
        cmocka_unit_test_setup(the_check_sees_every_bit, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
