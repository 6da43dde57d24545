/* Counts the bytes that a process copies, by its calls of the C library. To be preloaded.

   Each process counts in the file COPIED_BYTES/<pid>, which a test maps or reads: see copied_bytes.py.
   Copies of less than LEAST bytes are left out: they are of messages and of the interpreter's own. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { IN_MEMORY, SENT, RECEIVED, WRITTEN, READ, KINDS };
enum { LEAST = 1024 };

static _Atomic unsigned long nowhere[KINDS];
static _Atomic unsigned long *counts = nowhere;

static void count(int kind, ssize_t bytes) {
    if (bytes >= LEAST)
        atomic_fetch_add_explicit(&counts[kind], (unsigned long)bytes, memory_order_relaxed);
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("COPIED_BYTES");
    char path[4096];
    if (!folder)
        return;
    snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof nowhere))
        abort();
    void *mapped = mmap(NULL, sizeof nowhere, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        abort();
    close(file);
    counts = mapped;
}

/* memcpy may be called before a symbol can be looked up, so it copies by itself. */
static void *moved(void *to, const void *from, size_t size) {
    char *t = to;
    const char *f = from;
    count(IN_MEMORY, (ssize_t)size);
#if defined(__x86_64__)
    if (t <= f || t >= f + size) {
        void *at = to;
        size_t left = size;
        __asm__ volatile("rep movsb" : "+D"(at), "+S"(f), "+c"(left) : : "memory");
        return to;
    }
#endif
    if (t <= f || t >= f + size)
        for (size_t i = 0; i < size; i++)
            ((volatile char *)t)[i] = f[i];
    else
        for (size_t i = size; i-- > 0;)
            ((volatile char *)t)[i] = f[i];
    return to;
}

void *memcpy(void *to, const void *from, size_t size) { return moved(to, from, size); }
void *memmove(void *to, const void *from, size_t size) { return moved(to, from, size); }
void *__memcpy_chk(void *to, const void *from, size_t size, size_t room) {
    return size <= room ? moved(to, from, size) : (abort(), to);
}
void *__memmove_chk(void *to, const void *from, size_t size, size_t room) {
    return size <= room ? moved(to, from, size) : (abort(), to);
}

#define COUNTED(kind, name, parameters, arguments)                                                 \
    ssize_t name parameters {                                                                      \
        static ssize_t(*real) parameters;                                                          \
        if (!real)                                                                                 \
            real = (ssize_t(*) parameters)dlsym(RTLD_NEXT, #name);                                 \
        ssize_t done = real arguments;                                                             \
        count(kind, done);                                                                         \
        return done;                                                                               \
    }

COUNTED(SENT, send, (int f, const void *b, size_t n, int s), (f, b, n, s))
COUNTED(SENT, sendmsg, (int f, const struct msghdr *m, int s), (f, m, s))
COUNTED(SENT, sendto, (int f, const void *b, size_t n, int s, const struct sockaddr *a, socklen_t l),
        (f, b, n, s, a, l))
COUNTED(RECEIVED, recv, (int f, void *b, size_t n, int s), (f, b, n, s))
COUNTED(RECEIVED, recvmsg, (int f, struct msghdr *m, int s), (f, m, s))
COUNTED(RECEIVED, recvfrom, (int f, void *b, size_t n, int s, struct sockaddr *a, socklen_t *l),
        (f, b, n, s, a, l))
COUNTED(WRITTEN, write, (int f, const void *b, size_t n), (f, b, n))
COUNTED(WRITTEN, writev, (int f, const struct iovec *v, int n), (f, v, n))
COUNTED(WRITTEN, pwrite, (int f, const void *b, size_t n, off_t o), (f, b, n, o))
COUNTED(WRITTEN, pwrite64, (int f, const void *b, size_t n, off_t o), (f, b, n, o))
COUNTED(WRITTEN, pwritev, (int f, const struct iovec *v, int n, off_t o), (f, v, n, o))
COUNTED(WRITTEN, pwritev64, (int f, const struct iovec *v, int n, off_t o), (f, v, n, o))
COUNTED(WRITTEN, pwritev2, (int f, const struct iovec *v, int n, off_t o, int s), (f, v, n, o, s))
COUNTED(WRITTEN, pwritev64v2, (int f, const struct iovec *v, int n, off_t o, int s), (f, v, n, o, s))
COUNTED(READ, read, (int f, void *b, size_t n), (f, b, n))
COUNTED(READ, readv, (int f, const struct iovec *v, int n), (f, v, n))
COUNTED(READ, pread, (int f, void *b, size_t n, off_t o), (f, b, n, o))
COUNTED(READ, pread64, (int f, void *b, size_t n, off_t o), (f, b, n, o))
COUNTED(READ, preadv, (int f, const struct iovec *v, int n, off_t o), (f, v, n, o))
COUNTED(READ, preadv64, (int f, const struct iovec *v, int n, off_t o), (f, v, n, o))
COUNTED(READ, preadv2, (int f, const struct iovec *v, int n, off_t o, int s), (f, v, n, o, s))
COUNTED(READ, preadv64v2, (int f, const struct iovec *v, int n, off_t o, int s), (f, v, n, o, s))
