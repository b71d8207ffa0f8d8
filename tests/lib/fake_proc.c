#define _GNU_SOURCE
#include "tests/lib/fake_proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/check.h"

static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

static FILE *open_file(const struct fake_proc *proc, const char *name, const char *mode)
{
    char path[320];
    snprintf(path, sizeof path, "%s/%s", proc->path, name);
    FILE *file = fopen(path, mode);
    if (file == NULL)
        fail_msg("%s cannot be written", path);
    return file;
}

static void make_folder(const struct fake_proc *proc, const char *name)
{
    char path[320];
    snprintf(path, sizeof path, "%s/%s", proc->path, name);
    mkdir(path, 0700);
}

void fake_proc_new(struct fake_proc *proc)
{
    snprintf(proc->path, sizeof proc->path, "/tmp/fake-proc-XXXXXX");
    assert_non_null(mkdtemp(proc->path));
    fake_proc_clear(proc);
}

void fake_proc_clear(struct fake_proc *proc)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf %s/*", proc->path);
    run(command);
    make_folder(proc, "net");
    FILE *table = open_file(proc, "net/tcp", "w");
    fputs("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
          "timeout "
          "inode\n",
          table);
    fclose(table);
}

void fake_proc_free(struct fake_proc *proc)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf %s", proc->path);
    run(command);
}

void fake_proc_process(struct fake_proc *proc, int pid, int parent, int started, const char *name,
                       const char *arguments)
{
    char at[64];
    snprintf(at, sizeof at, "%d", pid);
    make_folder(proc, at);
    snprintf(at, sizeof at, "%d/stat", pid);
    FILE *file = open_file(proc, at, "w");
    fprintf(file,
            "%d (%s) S %d %d %d 0 -1 4194560 123 0 0 0 5 6 0 0 20 0 9 0 %d 1234567 89 "
            "18446744073709551615 1 1 0 0 0 0 0\n",
            pid, name, parent, pid, pid, started);
    fclose(file);
    snprintf(at, sizeof at, "%d/cmdline", pid);
    file = open_file(proc, at, "w");
    fputs("/usr/lib/", file);
    fputs(name, file);
    fputc('\0', file);
    for (const char *c = arguments; *c != '\0'; c++)
        fputc(*c == '|' ? '\0' : *c, file);
    fputc('\0', file);
    fclose(file);
}

void fake_proc_command(struct fake_proc *proc, int pid, int parent, int started, const char *name,
                       const char *format, ...)
{
    char arguments[512];
    va_list args;
    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    fake_proc_process(proc, pid, parent, started, name, arguments);
}

void fake_proc_end(struct fake_proc *proc, int pid)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf %s/%d", proc->path, pid);
    run(command);
}

void fake_proc_listener_of(struct fake_proc *proc, int uid, int port, const char *address,
                           unsigned inode)
{
    FILE *table = open_file(proc, strlen(address) > 8 ? "net/tcp6" : "net/tcp", "a");
    fprintf(table,
            "   0: %s:%04X %.*s:0000 0A 00000000:00000000 00:00000000 00000000 %5d        0 %u 1 "
            "0000000000000000 100 0 0 10 0\n",
            address, port, (int)strlen(address), "00000000000000000000000000000000",
            uid < 0 ? (int)getuid() : uid, inode);
    fclose(table);
}

void fake_proc_listener(struct fake_proc *proc, int port, const char *address, unsigned inode)
{
    fake_proc_listener_of(proc, -1, port, address, inode);
}

void fake_proc_share_network(struct fake_proc *proc, int pid)
{
    char command[512];
    snprintf(command, sizeof command, "mkdir -p %s/%d/net && cp %s/net/* %s/%d/net/", proc->path,
             pid, proc->path, proc->path, pid);
    run(command);
}

void fake_proc_holds(struct fake_proc *proc, int pid, unsigned inode)
{
    char path[256], target[64];
    snprintf(path, sizeof path, "%d/fd", pid);
    make_folder(proc, path);
    snprintf(path, sizeof path, "%s/%d/fd/%u", proc->path, pid, inode);
    snprintf(target, sizeof target, "socket:[%u]", inode);
    assert_int_equal(symlink(target, path), 0);
}
