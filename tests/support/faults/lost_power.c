/* Records what a power loss would leave on the disk, by the calls of processes that preload this.

   Only a sync makes anything last: fsync of a file its content, and fsync of a folder the names in
   it. Each is copied to the folder LOST_POWER as it is at that moment, and noted in its file "log".
   Names that are removed are noted as well. What is not below LOST_POWER_ROOT is left out. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic int copies;

static int below_root(const char *path) {
    const char *root = getenv("LOST_POWER_ROOT");
    size_t size = root ? strlen(root) : 0;
    return size && !strncmp(path, root, size) && (path[size] == '/' || !path[size]);
}

/* A file by its inode, which another file may have after it, and its time of birth. */
static int identify(int folder, const char *name, char *to, size_t size, unsigned *mode) {
    struct statx found;
    int flags = AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH);
    if (statx(folder, name, flags, STATX_BASIC_STATS | STATX_BTIME, &found))
        return -1;
    snprintf(to, size, "%llu.%lld.%u", (unsigned long long)found.stx_ino,
             (long long)found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
    *mode = found.stx_mode;
    return 0;
}

static void note(const char *what, const char *id, const char *copy, const char *path) {
    char line[2 * PATH_MAX];
    int size = snprintf(line, sizeof line, "%s/log", getenv("LOST_POWER"));
    int file = open(line, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    size = snprintf(line, sizeof line, "%s\t%s\t%s\t%s\n", what, id, copy, path);
    if (file < 0 || write(file, line, size) != size)
        abort();
    close(file);
}

static void copy_names(int from, FILE *to) {
    int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *each;
    if (!folder)
        abort();
    while ((each = readdir(folder))) {
        char id[96];
        unsigned mode;
        if (!strcmp(each->d_name, ".") || !strcmp(each->d_name, ".."))
            continue;
        if (!identify(dirfd(folder), each->d_name, id, sizeof id, &mode))
            fprintf(to, "%s\t%c\t%s\n", id, S_ISDIR(mode) ? 'd' : 'f', each->d_name);
    }
    closedir(folder);
}

static void copy_content(int from, FILE *to) {
    char link[64], block[1 << 16];
    snprintf(link, sizeof link, "/proc/self/fd/%d", from);
    int file = open(link, O_RDONLY | O_CLOEXEC);
    ssize_t size;
    if (file < 0)
        abort();
    while ((size = read(file, block, sizeof block)) > 0)
        fwrite(block, 1, size, to);
    close(file);
}

static int synced(int fd, const char *name) {
    int (*call)(int) = dlsym(RTLD_NEXT, name);
    char link[64], path[PATH_MAX], id[96], copy[64], to[2 * PATH_MAX];
    unsigned mode;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = getenv("LOST_POWER") ? readlink(link, path, sizeof path - 1) : 0;
    path[size > 0 ? size : 0] = 0;
    if (!below_root(path) || identify(fd, "", id, sizeof id, &mode))
        return call(fd);
    snprintf(copy, sizeof copy, "%d-%d", (int)getpid(), atomic_fetch_add(&copies, 1));
    snprintf(to, sizeof to, "%s/%s", getenv("LOST_POWER"), copy);
    FILE *file = fopen(to, "we");
    if (!file)
        abort();
    (S_ISDIR(mode) ? copy_names : copy_content)(fd, file);
    fclose(file);
    int result = call(fd);
    if (!result)
        note(S_ISDIR(mode) ? "names" : "content", id, copy, path);
    return result;
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }

static void removed(int folder, const char *name) {
    char link[64] = "/proc/self/cwd", at[PATH_MAX], path[2 * PATH_MAX];
    if (!getenv("LOST_POWER"))
        return;
    if (folder != AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t size = *name == '/' ? 0 : readlink(link, at, sizeof at - 1);
    at[size > 0 ? size : 0] = 0;
    snprintf(path, sizeof path, "%s%s%s", at, *name == '/' ? "" : "/", name);
    if (below_root(path))
        note("removed", "", "", path);
}

int unlink(const char *name) {
    int (*call)(const char *) = dlsym(RTLD_NEXT, "unlink");
    int result = call(name);
    if (!result)
        removed(AT_FDCWD, name);
    return result;
}

int unlinkat(int folder, const char *name, int flags) {
    int (*call)(int, const char *, int) = dlsym(RTLD_NEXT, "unlinkat");
    int result = call(folder, name, flags);
    if (!result)
        removed(folder, name);
    return result;
}

int rmdir(const char *name) {
    int (*call)(const char *) = dlsym(RTLD_NEXT, "rmdir");
    int result = call(name);
    if (!result)
        removed(AT_FDCWD, name);
    return result;
}
