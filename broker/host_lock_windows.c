/* host_lock_os.h over LockFileEx. Built and tried by tools/mingw.sh, under Wine only so far.
 *
 * LockFileEx is mandatory: who does not hold the lock cannot even read the locked bytes through a
 * handle. So one byte is locked, far past anything that a book may hold. The system releases locks
 * of the dead "depending on available system resources": some time after, not at once. */
#include "broker/host_lock_os.h"

#include <string.h>
#include <windows.h>

#include "broker/error.h"

#define LOCK_OFFSET_HIGH 0x7fffffffu

static int meaning_of_last_error(bool create)
{
    switch (GetLastError()) {
    case ERROR_FILE_NOT_FOUND: return create ? LEASE_EVANISHED : LEASE_EABSENT;
    case ERROR_PATH_NOT_FOUND: return LEASE_EVANISHED;
    case ERROR_ACCESS_DENIED:
    case ERROR_SHARING_VIOLATION: return LEASE_EPERM;
    case ERROR_NOT_ENOUGH_MEMORY: return LEASE_ENOMEM;
    case ERROR_INVALID_HANDLE: return LEASE_ECLOSED;
    default: return LEASE_EIO;
    }
}

/* dir_fd and mode mean nothing here: names are paths, and access follows the directory's list. */
int host_lock_os_open(host_lock_file *file, int dir_fd, const char *name, unsigned flags,
                      unsigned mode)
{
    bool create = (flags & HOST_LOCK_CREATE) != 0;
    DWORD access = GENERIC_READ | ((flags & HOST_LOCK_READ) ? 0 : GENERIC_WRITE);
    (void)dir_fd;
    (void)mode;
    HANDLE h = CreateFileA(name, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                           NULL, create ? OPEN_ALWAYS : OPEN_EXISTING,
                           FILE_ATTRIBUTE_NORMAL | FILE_FLAG_OPEN_REPARSE_POINT, NULL);
    if (h == INVALID_HANDLE_VALUE) {
        return meaning_of_last_error(create);
    }
    *file = (host_lock_file)h;
    return 0;
}

void host_lock_os_close(host_lock_file file)
{
    (void)CloseHandle((HANDLE)file);
}

static OVERLAPPED lock_place(void)
{
    OVERLAPPED place;
    memset(&place, 0, sizeof place);
    place.OffsetHigh = LOCK_OFFSET_HIGH;
    return place;
}

int host_lock_os_take(host_lock_file file, enum host_lock_mode mode, bool wait)
{
    DWORD how = (mode == HOST_LOCK_EXCLUSIVE ? LOCKFILE_EXCLUSIVE_LOCK : 0) |
                (wait ? 0 : LOCKFILE_FAIL_IMMEDIATELY);
    OVERLAPPED place = lock_place();
    if (LockFileEx((HANDLE)file, how, 0, 1, 0, &place)) {
        return 0;
    }
    DWORD error = GetLastError();
    bool busy = error == ERROR_LOCK_VIOLATION || error == ERROR_IO_PENDING;
    return busy ? LEASE_ELOCKED : meaning_of_last_error(false);
}

void host_lock_os_give(host_lock_file file)
{
    OVERLAPPED place = lock_place();
    (void)UnlockFileEx((HANDLE)file, 0, 1, 0, &place);
}

int host_lock_os_facts(host_lock_file file, struct host_lock_facts *facts)
{
    BY_HANDLE_FILE_INFORMATION info;
    FILE_STANDARD_INFO standard;
    if (!GetFileInformationByHandle((HANDLE)file, &info)) {
        return meaning_of_last_error(false);
    }
    facts->device = info.dwVolumeSerialNumber;
    facts->inode = (uint64_t)info.nFileIndexHigh << 32 | info.nFileIndexLow;
    facts->size = (uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow;
    facts->links = info.nNumberOfLinks;
    facts->regular =
        (info.dwFileAttributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT)) == 0;
    /* A file that is deleted while open keeps its count until the last handle is closed. */
    if (GetFileInformationByHandleEx((HANDLE)file, FileStandardInfo, &standard, sizeof standard) &&
        standard.DeletePending) {
        facts->links = 0;
    }
    return 0;
}

uint64_t host_lock_os_size(host_lock_file file)
{
    LARGE_INTEGER size;
    return GetFileSizeEx((HANDLE)file, &size) ? (uint64_t)size.QuadPart : 0;
}

/* The restart manager could tell for a path, at the price of a service call; nobody needs it yet.
 */
uint32_t host_lock_os_holder(uint64_t device, uint64_t inode)
{
    (void)device;
    (void)inode;
    return 0;
}

bool host_lock_os_is_at_work(uint32_t pid)
{
    (void)pid; /* nobody is named above */
    return false;
}

uint32_t host_lock_os_pid(void)
{
    return (uint32_t)GetCurrentProcessId();
}

void host_lock_os_at_fork(void (*before)(void), void (*parent)(void), void (*child)(void))
{
    (void)before; /* there is no fork */
    (void)parent;
    (void)child;
}
