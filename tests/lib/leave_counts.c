/* Linked into every program of tools/coverage.sh: a forked child that leaves by _exit() writes down
 * first what it ran, as one that returns from main() does. */
void __gcov_dump(void);
_Noreturn void __real__exit(int code);
_Noreturn void __wrap__exit(int code);

void __wrap__exit(int code)
{
    __gcov_dump();
    __real__exit(code);
}
