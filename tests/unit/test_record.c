#include "broker/record.h"

#include <string.h>

#include "tests/lib/check.h"

/* ---- ids as text ------------------------------------------------------------------------------ */

static void an_id_is_26_characters_of_base32(void **state)
{
    (void)state;
    char text[LEASE_ID_TEXT_SIZE];
    lease_id_format("z4", (struct lease_id){0, 1}, text);
    /* 127 zero bits and a one: 25 characters of zeroes, the last carries 3 bits: 001 00 = 4 = e */
    assert_string_equal(text, "z4:aaaaaaaaaaaaaaaaaaaaaaaaae");
    lease_id_format("z4", (struct lease_id){UINT64_MAX, UINT64_MAX}, text);
    /* 25 times 31, then 111 00 = 28 = 4 */
    assert_string_equal(text, "z4:77777777777777777777777774");
    lease_id_format("z4", (struct lease_id){UINT64_C(1) << 63, 1}, text);
    assert_string_equal(text, "z4:qaaaaaaaaaaaaaaaaaaaaaaaae");
}

static void ids_come_back_as_they_went(void **state)
{
    (void)state;
    uint64_t word = 1;
    for (int i = 0; i < 10000; i++) {
        word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        struct lease_id id = {word, (word ^ word >> 29) | 1}, back = {0, 0};
        char text[LEASE_ID_TEXT_SIZE], provider[NAME_SIZE];
        lease_id_format("m5-qwen.30b_a", id, text);
        assert_int_equal(strlen(text), 13 + 1 + 26);
        assert_true(lease_id_parse(text, provider, &back));
        assert_string_equal(provider, "m5-qwen.30b_a");
        assert_true(lease_id_equal(id, back));
    }
}

static void the_longest_name_fits(void **state)
{
    (void)state;
    char name[NAME_SIZE], text[LEASE_ID_TEXT_SIZE], provider[NAME_SIZE];
    memset(name, 'n', NAME_CHARS_MAX);
    name[NAME_CHARS_MAX] = '\0';
    struct lease_id id;
    lease_id_format(name, (struct lease_id){7, 9}, text);
    assert_in_range(strlen(text) + 1, NAME_SIZE, LEASE_ID_TEXT_SIZE);
    assert_true(lease_id_parse(text, provider, &id));
    assert_string_equal(provider, name);
}

static void what_is_no_id_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        ":",
        "z4",
        "z4:",
        ":aaaaaaaaaaaaaaaaaaaaaaaaae",
        "z4:aaaaaaaaaaaaaaaaaaaaaaaaa",   /* one too short */
        "z4:aaaaaaaaaaaaaaaaaaaaaaaaaea", /* one too long */
        "z4:aaaaaaaaaaaaaaaaaaaaaaaaaf",  /* a bit beyond the 128 */
        "z4:aaaaaaaaaaaaaaaaaaaaaaaaag",  /* the other one */
        "z4:aaaaaaaaaaaaaaaaaaaaaaaaaa",  /* counter 0 is no lease */
        "z4:Aaaaaaaaaaaaaaaaaaaaaaaaae",  /* upper case */
        "z4:1aaaaaaaaaaaaaaaaaaaaaaaae",  /* 1 and 0, 8, 9 are no base32 */
        "z4:aaaaaaaaaaaaaaaaaaaaaaaaae ", /* anything after it */
        " z4:aaaaaaaaaaaaaaaaaaaaaaaaae", /* or before it */
        "z 4:aaaaaaaaaaaaaaaaaaaaaaaaae",
        "z4:b:aaaaaaaaaaaaaaaaaaaaaaaae",
        ("nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn:"
         "aaaaaaaaaaaaaaaaaaaaaaaaae"),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char provider[NAME_SIZE] = "before";
        struct lease_id id = {1, 2};
        if (lease_id_parse(bad[i], provider, &id))
            fail_msg("taken for an id: '%s'", bad[i]);
        assert_string_equal(provider, "before");
        assert_true(lease_id_equal(id, (struct lease_id){1, 2}));
    }
}

static void names_are_letters_digits_and_three_marks(void **state)
{
    (void)state;
    assert_true(name_is_valid("z4"));
    assert_true(name_is_valid("A.b_c-9"));
    assert_false(name_is_valid(""));
    assert_false(name_is_valid("a b"));
    assert_false(name_is_valid("a/b"));
    assert_false(name_is_valid("a:b"));
    assert_false(name_is_valid("\xc3\xa4"));
}

static void no_request_id_equals_nothing(void **state)
{
    (void)state;
    struct request_id none = {0, 0}, one = {0, 1}, other = {1, 0};
    assert_true(request_id_is_none(none));
    assert_false(request_id_equal(none, none));
    assert_true(request_id_equal(one, one));
    assert_false(request_id_equal(one, other));
}

/* ---- text ------------------------------------------------------------------------------------- */

static void copies_to(const char *from, size_t size, const char *expected)
{
    char to[64];
    memset(to, 'x', sizeof to);
    text_copy(to, size, from);
    assert_string_equal(to, expected);
    for (size_t i = strlen(expected); i < size; i++)
        assert_int_equal(to[i], 0); /* sealed with a checksum: nothing may lie behind the text */
    for (size_t i = size; i < sizeof to; i++)
        assert_int_equal(to[i], 'x');
}

static void text_is_cut_at_a_characters_border(void **state)
{
    (void)state;
    copies_to("", 8, "");
    copies_to("subagent/7", 16, "subagent/7");
    copies_to("subagent/7", 5, "suba");
    copies_to("anything", 1, "");
    copies_to("caf\xc3\xa9", 5, "caf");
    copies_to("caf\xc3\xa9", 6, "caf\xc3\xa9");
    copies_to("\xe2\x82\xac", 3, "");
    copies_to("\xe2\x82\xac", 4, "\xe2\x82\xac");
    copies_to("a\xf0\x9f\x98\x80", 5, "a");
    copies_to("a\xf0\x9f\x98\x80", 6, "a\xf0\x9f\x98\x80");
}

static void what_is_no_utf8_becomes_question_marks(void **state)
{
    (void)state;
    copies_to("a\xff"
              "b",
              16, "a?b");
    copies_to("\x80", 16, "?");                /* a continuation without a beginning */
    copies_to("\xc3", 16, "?");                /* cut short at the end */
    copies_to("\xe2\x82", 16, "??");           /* the same in three bytes */
    copies_to("\xe2\x82z", 16, "??z");         /* what follows is kept */
    copies_to("\xc0\xaf", 16, "??");           /* overlong '/' */
    copies_to("\xe0\x80\xaf", 16, "???");      /* the same in three bytes */
    copies_to("\xf0\x80\x80\xaf", 16, "????"); /* and four */
    copies_to("\xed\xa0\x80", 16, "???");      /* a surrogate */
    copies_to("\xf4\x90\x80\x80", 16, "????"); /* beyond U+10FFFF */
    copies_to("\xf8\x88\x80\x80\x80", 16, "?????");
}

static void what_moves_a_terminal_becomes_question_marks(void **state)
{
    (void)state;
    copies_to("a\033[2Jb", 16, "a?[2Jb");
    copies_to("a\nb\tc\rd\177", 16, "a?b?c?d?");
    copies_to("\xc2\x9b", 16, "??");       /* C1 CSI in UTF-8 */
    copies_to("\xc2\xa0", 16, "\xc2\xa0"); /* the first that is none */
}

static void states_have_names(void **state)
{
    (void)state;
    static const char *const states[] = {"free", "waiting", "held", "dispatched", "orphan", "gone"};
    static const char *const ends[] = {"none",    "released", "expired", "lapsed",
                                       "refused", "gave up",  "forced",  "replaced"};
    for (int i = 0; i <= RECORD_GONE; i++)
        assert_string_equal(record_state_name((enum record_state)i), states[i]);
    for (int i = 0; i <= END_REPLACED; i++)
        assert_string_equal(record_end_name((enum record_end)i), ends[i]);
    assert_string_equal(record_state_name((enum record_state)99), "unknown");
    assert_string_equal(record_end_name((enum record_end)99), "unknown");
}

/* Text that turns the line around, or joins what it should not, shows as what it is: nothing. */
static void characters_that_show_nothing_are_no_text(void **state)
{
    (void)state;
    char to[LABEL_SIZE];
    text_copy(to, sizeof to,
              "a\xe2\x80\xae"
              "b"); /* U+202E, right to left from here */
    assert_string_equal(to, "a???b");
    text_copy(to, sizeof to,
              "a\xe2\x80\x8d"
              "b"); /* U+200D, joins */
    assert_string_equal(to, "a???b");
    text_copy(to, sizeof to, "\xe2\x80\xa6"); /* U+2026, an ellipsis */
    assert_string_equal(to, "\xe2\x80\xa6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_that_show_nothing_are_no_text),
        cmocka_unit_test(an_id_is_26_characters_of_base32),
        cmocka_unit_test(ids_come_back_as_they_went),
        cmocka_unit_test(the_longest_name_fits),
        cmocka_unit_test(what_is_no_id_is_refused_and_changes_nothing),
        cmocka_unit_test(names_are_letters_digits_and_three_marks),
        cmocka_unit_test(no_request_id_equals_nothing),
        cmocka_unit_test(text_is_cut_at_a_characters_border),
        cmocka_unit_test(what_is_no_utf8_becomes_question_marks),
        cmocka_unit_test(what_moves_a_terminal_becomes_question_marks),
        cmocka_unit_test(states_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
