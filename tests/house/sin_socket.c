/* What the core must not do: open a socket. */
#include <sys/socket.h>

int sin_socket(void);

int sin_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}
