#include "proto/beacon.h"

#include <string.h>

#include "tests/lib/check.h"

static const struct beacon sample = {
    .id = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    .port = 5771,
    .address = {192, 168, 1, 7},
};

static void comes_back_as_it_was(void **state)
{
    (void)state;
    uint8_t bytes[WIRE_BEACON_BYTES];
    struct beacon back = {.port = 1};
    beacon_encode(&sample, bytes);
    assert_true(beacon_decode(bytes, sizeof bytes, &back));
    assert_int_equal(back.port, 5771);
    assert_memory_equal(back.id, sample.id, sizeof back.id);
    assert_memory_equal(back.address, sample.address, sizeof back.address);
}

static void is_as_the_manual_says(void **state)
{
    (void)state;
    static const uint8_t wanted[WIRE_BEACON_BYTES] = {
        'L', 'S', 'H', 'B', 1,  0,  0x16, 0x8b, 0,  1,  2,   3,   4, 5,
        6,   7,   8,   9,   10, 11, 12,   13,   14, 15, 192, 168, 1, 7};
    uint8_t bytes[WIRE_BEACON_BYTES];
    beacon_encode(&sample, bytes);
    assert_memory_equal(bytes, wanted, sizeof wanted);
}

static void a_later_version_is_read_too(void **state)
{
    (void)state;
    uint8_t bytes[WIRE_BEACON_BYTES + 9] = {0};
    struct beacon back;
    beacon_encode(&sample, bytes);
    bytes[4] = 7;
    assert_true(beacon_decode(bytes, sizeof bytes, &back));
    assert_int_equal(back.port, 5771);
}

/* Any byte of the head that is wrong, any size that is short, and no port: none, and nothing changes. */
static void what_is_none_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[WIRE_BEACON_BYTES];
    struct beacon back = {.port = 99};
    beacon_encode(&sample, bytes);
    for (size_t size = 0; size < sizeof bytes; size++)
        assert_false(beacon_decode(bytes, size, &back));
    for (int i = 0; i < 4; i++) {
        bytes[i] ^= 0x20;
        assert_false(beacon_decode(bytes, sizeof bytes, &back));
        bytes[i] ^= 0x20;
    }
    bytes[4] = 0;
    assert_false(beacon_decode(bytes, sizeof bytes, &back));
    bytes[4] = 1;
    bytes[6] = bytes[7] = 0;
    assert_false(beacon_decode(bytes, sizeof bytes, &back));
    assert_int_equal(back.port, 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back_as_it_was),
        cmocka_unit_test(is_as_the_manual_says),
        cmocka_unit_test(a_later_version_is_read_too),
        cmocka_unit_test(what_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
