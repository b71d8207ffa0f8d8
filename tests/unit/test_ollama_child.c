#define _GNU_SOURCE
#include "agent/ollama_child.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/lib/check.h"
#include "tests/lib/fake_proc.h"

#define SERVER 11434
#define CHILD  40001
#define HOME   "0100007F"

static struct fake_proc proc;

/* Ollama and its child, both listening. */
static void family(void)
{
    fake_proc_clear(&proc);
    fake_proc_process(&proc, 1, 0, 1, "init", "");
    fake_proc_process(&proc, 500, 1, 50, "ollama", "serve");
    fake_proc_process(&proc, 501, 500, 51, "llama-server",
                      "--model|/blobs/sha256-1|--host|127.0.0.1|--port|40001|-np|4");
    fake_proc_listener(&proc, SERVER, HOME, 9001);
    fake_proc_listener(&proc, CHILD, HOME, 9002);
    fake_proc_share_network(&proc, 501);
}

/* The two, with the sockets still to be told. */
static void family_without_sockets(void)
{
    fake_proc_clear(&proc);
    fake_proc_process(&proc, 500, 1, 50, "ollama", "serve");
    fake_proc_process(&proc, 501, 500, 51, "llama-server", "--port|40001");
}

static int found(void)
{
    struct ollama_child child;
    int count = ollama_child_find(SERVER, &child);
    if (count > 0) {
        assert_int_equal(child.port, CHILD);
        assert_true(ollama_child_lives(&child));
    } else {
        assert_int_equal(child.pid, 0);
        assert_false(ollama_child_lives(&child));
    }
    return count;
}

static void a_child_is_found(void **state)
{
    (void)state;
    struct ollama_child child;
    family();
    assert_int_equal(ollama_child_find(SERVER, &child), 1);
    assert_int_equal(child.pid, 501);
    assert_int_equal(child.port, CHILD);
    assert_int_equal(child.started, 51);
    fake_proc_process(&proc, 501, 500, 51, "llama-server", "--port=40001");
    assert_int_equal(found(), 1);
    fake_proc_process(&proc, 501, 777, 51, "llama-server", "--port|40001"); /* below a wrapper */
    fake_proc_process(&proc, 777, 500, 50, "sh (x) y", "");
    assert_int_equal(found(), 1);
}

static void a_new_process_of_that_number_is_another(void **state)
{
    (void)state;
    struct ollama_child child;
    family();
    assert_int_equal(ollama_child_find(SERVER, &child), 1);
    fake_proc_process(&proc, 501, 500, 99, "llama-server", "--port|40001");
    assert_false(ollama_child_lives(&child));
    fake_proc_end(&proc, 501);
    assert_false(ollama_child_lives(&child));
}

static void an_ollama_on_every_address_is_found(void **state)
{
    (void)state;
    family_without_sockets();
    fake_proc_listener(&proc, SERVER, "00000000000000000000000000000000", 9001);
    fake_proc_listener(&proc, CHILD, HOME, 9002);
    fake_proc_share_network(&proc, 501);
    assert_int_equal(found(), 1);
}

static void nobody_else_s_is_taken(void **state)
{
    (void)state;
    family();
    fake_proc_process(&proc, 501, 1, 51, "llama-server", "--port|40001"); /* somebody's own */
    assert_int_equal(found(), 0);
    fake_proc_process(&proc, 501, 600, 51, "llama-server", "--port|40001");
    fake_proc_process(&proc, 600, 1, 51, "llama-swap", "");
    assert_int_equal(found(), 0);
    fake_proc_process(&proc, 501, 999, 51, "llama-server", "--port|40001"); /* parent is gone */
    assert_int_equal(found(), 0);
    fake_proc_process(&proc, 501, 501, 51, "llama-server", "--port|40001"); /* a circle */
    assert_int_equal(found(), 0);
}

static void sockets_must_be_theirs(void **state)
{
    (void)state;
    family_without_sockets();
    fake_proc_listener(&proc, CHILD, HOME, 9002);
    fake_proc_share_network(&proc, 501);
    assert_int_equal(found(), 0); /* nobody listens on the server's port */
    fake_proc_listener_of(&proc, 12345, SERVER, HOME, 9001); /* another user does */
    assert_int_equal(found(), 0);
    family_without_sockets();
    fake_proc_listener(&proc, SERVER, HOME, 9001);
    fake_proc_listener_of(&proc, 12345, CHILD, HOME, 9002);
    fake_proc_share_network(&proc, 501);
    assert_int_equal(found(), 0);
}

static void another_network_is_another_port(void **state)
{
    (void)state;
    family_without_sockets();
    fake_proc_listener(&proc, CHILD, HOME, 7777); /* as the child's namespace has it */
    fake_proc_share_network(&proc, 501);
    char command[256];
    snprintf(command, sizeof command, "sed -i '/7777/d' %s/net/tcp", proc.path);
    assert_int_equal(system(command), 0);
    fake_proc_listener(&proc, SERVER, HOME, 9001);
    assert_int_equal(found(), 0);
    fake_proc_listener(&proc, CHILD, HOME, 9002); /* as ours does */
    assert_int_equal(found(), 0);
}

static void only_loopback_ports_count(void **state)
{
    (void)state;
    static const char *const commands[] = {"--host|10.0.0.7|--port|40001",
                                           "--port|40001|--host=0.0.0.0",
                                           "--port|0",
                                           "--port|-1",
                                           "--port|99999",
                                           "--port|x",
                                           "--port",
                                           "",
                                           "--portal|40001"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        family();
        fake_proc_process(&proc, 501, 500, 51, "llama-server", commands[i]);
        assert_int_equal(found(), 0);
    }
    family_without_sockets();
    fake_proc_listener(&proc, SERVER, HOME, 9001);
    fake_proc_listener(&proc, CHILD, "0700000A", 9002); /* listens elsewhere */
    fake_proc_share_network(&proc, 501);
    assert_int_equal(found(), 0);
}

static void several_are_told(void **state)
{
    (void)state;
    struct ollama_child child;
    family();
    fake_proc_process(&proc, 502, 500, 52, "llama-server", "--port|40002");
    fake_proc_listener(&proc, 40002, HOME, 9003);
    fake_proc_share_network(&proc, 502);
    assert_int_equal(ollama_child_find(SERVER, &child), 2);
}

/* A second Ollama of the same user: told apart where they show their descriptors, else not at all. */
static void of_two_ollamas_the_right_one_counts(void **state)
{
    (void)state;
    struct ollama_child child;
    family();
    fake_proc_process(&proc, 600, 1, 60, "ollama", "serve");
    fake_proc_process(&proc, 601, 600, 61, "llama-server", "--port|40003");
    fake_proc_listener(&proc, 40003, HOME, 9005);
    fake_proc_share_network(&proc, 601);
    assert_true(ollama_child_find(SERVER, &child) > 1);
    fake_proc_holds(&proc, 500, 9001);
    fake_proc_holds(&proc, 600, 9004);
    assert_int_equal(found(), 1);
}

static void odd_lists_do_no_harm(void **state)
{
    (void)state;
    struct ollama_child child;
    char command[512];
    family();
    snprintf(
        command, sizeof command,
        "echo garbage >%s/501/stat; mkdir %s/77 %s/88x; : >%s/77/stat; echo ') (' >%s/500/stat",
        proc.path, proc.path, proc.path, proc.path, proc.path);
    assert_int_equal(system(command), 0);
    assert_int_equal(ollama_child_find(SERVER, &child), 0);
    ollama_proc = "/nonexistent";
    assert_int_equal(ollama_child_find(SERVER, &child), 0);
    ollama_proc = "/proc"; /* the real one has no such thing on this port */
    assert_int_equal(ollama_child_find(1, &child), 0);
    ollama_proc = proc.path;
}

static int start(void **state)
{
    (void)state;
    fake_proc_new(&proc);
    ollama_proc = proc.path;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    fake_proc_free(&proc);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_found),
        cmocka_unit_test(a_new_process_of_that_number_is_another),
        cmocka_unit_test(an_ollama_on_every_address_is_found),
        cmocka_unit_test(nobody_else_s_is_taken),
        cmocka_unit_test(sockets_must_be_theirs),
        cmocka_unit_test(another_network_is_another_port),
        cmocka_unit_test(only_loopback_ports_count),
        cmocka_unit_test(several_are_told),
        cmocka_unit_test(of_two_ollamas_the_right_one_counts),
        cmocka_unit_test(odd_lists_do_no_harm),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
