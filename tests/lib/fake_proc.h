/* A process list of the test's own making: a folder that looks like /proc. Everything in it belongs
 * to the user who runs the test. */
#ifndef TESTS_LIB_FAKE_PROC_H
#define TESTS_LIB_FAKE_PROC_H

struct fake_proc {
    char path[64];
};

void fake_proc_new(struct fake_proc *proc);
void fake_proc_clear(struct fake_proc *proc); /* no process, no socket */
void fake_proc_free(struct fake_proc *proc);

/* Arguments are parted by '|'. */
void fake_proc_process(struct fake_proc *proc, int pid, int parent, int started, const char *name,
                       const char *arguments);
void fake_proc_command(struct fake_proc *proc, int pid, int parent, int started, const char *name,
                       const char *format, ...) __attribute__((format(printf, 6, 7)));
void fake_proc_end(struct fake_proc *proc, int pid);

/* A socket that listens; the address as in net/tcp. Of uid -1 it is the test's own. */
void fake_proc_listener(struct fake_proc *proc, int port, const char *address, unsigned inode);
void fake_proc_listener_of(struct fake_proc *proc, int uid, int port, const char *address,
                           unsigned inode);

/* The process is in the network namespace whose sockets were told so far. */
void fake_proc_share_network(struct fake_proc *proc, int pid);

/* It shows its descriptors, and this socket is one. */
void fake_proc_holds(struct fake_proc *proc, int pid, unsigned inode);

#endif
