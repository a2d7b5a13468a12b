/* Writes down what a process does: loaded by LD_PRELOAD it replaces functions of the C library, by LD_AUDIT it is told
 * of each library that the dynamic linker maps. A record is "ACTION FAILED TARGET" and a zero byte, in the file that
 * GUARD_RECORD names. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static void record(const char *action, int failed, const char *target) {
    int saved = errno;
    const char *path = getenv("GUARD_RECORD");
    char line[8400];
    int length = snprintf(line, sizeof line, "%s %d %s", action, failed, target);
    if (path && length > 0) {
        size_t bytes = (size_t)length < sizeof line ? (size_t)length + 1 : sizeof line;
        /* One append is one record, also of several threads. The call itself is made directly: it is not recorded. */
        long file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
        if (file >= 0) {
            line[bytes - 1] = 0;
            if (syscall(SYS_write, file, line, bytes) < 0) abort();
            syscall(SYS_close, file);
        }
    }
    errno = saved;
}

static void record_at(const char *action, int failed, int folder, const char *path) {
    char base[4200], link[64];
    if (path[0] == '/' || folder == AT_FDCWD) {
        if (path[0] == '/' || !getcwd(base, sizeof base)) {
            record(action, failed, path);
            return;
        }
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        long length = syscall(SYS_readlinkat, AT_FDCWD, link, base, sizeof base - 1);
        base[length > 0 ? length : 0] = 0;
    }
    char whole[8300];
    snprintf(whole, sizeof whole, "%s/%s", base, path);
    record(action, failed, whole);
}

static void record_address(const char *action, int failed, const struct sockaddr *address, socklen_t length) {
    char host[INET6_ADDRSTRLEN] = "", target[300];
    if (!address || length < sizeof(sa_family_t)) return;
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(target, sizeof target, "%s:%d", host, ntohs(in->sin_port));
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)address;
        inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        snprintf(target, sizeof target, "%s:%d", host, ntohs(in->sin6_port));
    } else if (address->sa_family == AF_UNIX) {
        const struct sockaddr_un *un = (const void *)address;
        int bytes = (int)length - (int)offsetof(struct sockaddr_un, sun_path);
        if (bytes <= 0) return;
        if (un->sun_path[0]) snprintf(target, sizeof target, "%.*s", bytes, un->sun_path);
        else snprintf(target, sizeof target, "@%.*s", bytes - 1, un->sun_path + 1);
    } else if (address->sa_family == AF_NETLINK || address->sa_family == AF_UNSPEC) {
        return;
    } else {
        snprintf(target, sizeof target, "AF_%d", address->sa_family);
    }
    record(action, failed, target);
}

/* Told by the dynamic linker, in a namespace of its own. */
unsigned int la_version(unsigned int version) { return version; }

unsigned int la_objopen(struct link_map *map, Lmid_t lmid, uintptr_t *cookie) {
    (void)lmid;
    (void)cookie;
    /* What has no folder is the kernel's own. */
    if (map->l_name && strchr(map->l_name, '/')) record_at("map", 0, AT_FDCWD, map->l_name);
    return 0;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static const char *opened_for(int flags) {
    return flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) ? "change" : "read";
}

#define MODE(flags, last) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, last); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        MODE(flags, flags) \
        int result = real(path, flags, mode); \
        record_at(opened_for(flags), result < 0, AT_FDCWD, path); \
        return result; \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(name); \
        MODE(flags, flags) \
        int result = real(folder, path, flags, mode); \
        record_at(opened_for(flags), result < 0, folder, path); \
        return result; \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) { \
        REAL(name); \
        FILE *result = real(path, mode); \
        record_at(strpbrk(mode, "wa+") ? "change" : "read", !result, AT_FDCWD, path); \
        return result; \
    }
FOPEN(fopen)
FOPEN(fopen64)

DIR *opendir(const char *path) {
    REAL(opendir);
    DIR *result = real(path);
    record_at("read", !result, AT_FDCWD, path);
    return result;
}

int creat(const char *path, mode_t mode) {
    REAL(creat);
    int result = real(path, mode);
    record_at("change", result < 0, AT_FDCWD, path);
    return result;
}

#define ONE_PATH(name, types, words) \
    int name types { \
        REAL(name); \
        int result = real words; \
        record_at("change", result < 0, AT_FDCWD, path); \
        return result; \
    }
ONE_PATH(unlink, (const char *path), (path))
ONE_PATH(rmdir, (const char *path), (path))
ONE_PATH(remove, (const char *path), (path))
ONE_PATH(mkdir, (const char *path, mode_t mode), (path, mode))
ONE_PATH(chmod, (const char *path, mode_t mode), (path, mode))
ONE_PATH(truncate, (const char *path, off_t length), (path, length))
ONE_PATH(truncate64, (const char *path, off64_t length), (path, length))

#define PATH_AT(name, types, words) \
    int name types { \
        REAL(name); \
        int result = real words; \
        record_at("change", result < 0, folder, path); \
        return result; \
    }
PATH_AT(unlinkat, (int folder, const char *path, int flags), (folder, path, flags))
PATH_AT(mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode))

#define TWO_PATHS(name, types, words, first, second) \
    int name types { \
        REAL(name); \
        int result = real words; \
        record_at("change", result < 0, first, path); \
        record_at("change", result < 0, second, other); \
        return result; \
    }
TWO_PATHS(rename, (const char *path, const char *other), (path, other), AT_FDCWD, AT_FDCWD)
TWO_PATHS(link, (const char *path, const char *other), (path, other), AT_FDCWD, AT_FDCWD)
TWO_PATHS(renameat, (int from, const char *path, int to, const char *other), (from, path, to, other), from, to)
TWO_PATHS(renameat2, (int from, const char *path, int to, const char *other, unsigned int flags),
          (from, path, to, other, flags), from, to)
TWO_PATHS(linkat, (int from, const char *path, int to, const char *other, int flags), (from, path, to, other, flags),
          from, to)

/* What a link leads to is text, which nobody looks up. */
ONE_PATH(symlink, (const char *target, const char *path), (target, path))
PATH_AT(symlinkat, (const char *target, int folder, const char *path), (target, folder, path))

#define LOOK(name, types, words, at) \
    int name types { \
        REAL(name); \
        int result = real words; \
        if (path[0]) record_at("look", result < 0, at, path); \
        return result; \
    }
LOOK(stat, (const char *restrict path, struct stat *restrict to), (path, to), AT_FDCWD)
LOOK(lstat, (const char *restrict path, struct stat *restrict to), (path, to), AT_FDCWD)
LOOK(stat64, (const char *restrict path, struct stat64 *restrict to), (path, to), AT_FDCWD)
LOOK(lstat64, (const char *restrict path, struct stat64 *restrict to), (path, to), AT_FDCWD)
LOOK(fstatat, (int folder, const char *restrict path, struct stat *restrict to, int flags), (folder, path, to, flags),
     folder)
LOOK(fstatat64, (int folder, const char *restrict path, struct stat64 *restrict to, int flags),
     (folder, path, to, flags), folder)
LOOK(statx, (int folder, const char *restrict path, int flags, unsigned int mask, struct statx *restrict to),
     (folder, path, flags, mask, to), folder)
LOOK(access, (const char *path, int mode), (path, mode), AT_FDCWD)
LOOK(faccessat, (int folder, const char *path, int mode, int flags), (folder, path, mode, flags), folder)

ssize_t readlink(const char *restrict path, char *restrict to, size_t bytes) {
    REAL(readlink);
    ssize_t result = real(path, to, bytes);
    record_at("look", result < 0, AT_FDCWD, path);
    return result;
}

#define ADDRESS(name, action) \
    int name(int socket, const struct sockaddr *address, socklen_t length) { \
        static int (*real)(int, const struct sockaddr *, socklen_t); \
        if (!real) real = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, #name); \
        record_address(action, 0, address, length); \
        return real(socket, address, length); \
    }
ADDRESS(connect, "connect")
ADDRESS(bind, "bind")

ssize_t sendto(int socket, const void *data, size_t bytes, int flags, const struct sockaddr *address, socklen_t length) {
    static ssize_t (*real)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    if (!real) real = (ssize_t(*)(int, const void *, size_t, int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "sendto");
    record_address("connect", 0, address, length);
    return real(socket, data, bytes, flags, address, length);
}

ssize_t sendmsg(int socket, const struct msghdr *message, int flags) {
    REAL(sendmsg);
    record_address("connect", 0, message->msg_name, message->msg_namelen);
    return real(socket, message, flags);
}

int sendmmsg(int socket, struct mmsghdr *messages, unsigned int count, int flags) {
    REAL(sendmmsg);
    for (unsigned int i = 0; i < count; i++)
        record_address("connect", 0, messages[i].msg_hdr.msg_name, messages[i].msg_hdr.msg_namelen);
    return real(socket, messages, count, flags);
}

/* A program looked for in PATH is recorded by its name. Those that take a list are seen by the functions that they call
 * only in static C libraries, so each is named. */
#define EXEC(name, types, words) \
    int name types { \
        REAL(name); \
        record("exec", 0, path); \
        return real words; \
    }
EXEC(execve, (const char *path, char *const arguments[], char *const environment[]), (path, arguments, environment))
EXEC(execv, (const char *path, char *const arguments[]), (path, arguments))
EXEC(execvp, (const char *path, char *const arguments[]), (path, arguments))
EXEC(execvpe, (const char *path, char *const arguments[], char *const environment[]), (path, arguments, environment))
EXEC(posix_spawn,
     (pid_t * pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
      char *const arguments[], char *const environment[]),
     (pid, path, actions, attributes, arguments, environment))
EXEC(posix_spawnp,
     (pid_t * pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
      char *const arguments[], char *const environment[]),
     (pid, path, actions, attributes, arguments, environment))

int system(const char *command) {
    REAL(system);
    record("exec", 0, "/bin/sh");
    return real(command);
}

FILE *popen(const char *command, const char *mode) {
    REAL(popen);
    record("exec", 0, "/bin/sh");
    return real(command, mode);
}
