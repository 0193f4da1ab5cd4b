/* Stands between a process and its C library (LD_PRELOAD): the wall clock is off by some time, and what is written takes
 * its time to reach the disk. How much is said in a file of 32 bytes, which is mapped, so that it changes under the
 * process; what was done is counted in it. chaos/world.py has the other end.
 *
 * It is named by TWICESAFE_CHAOS_WORLD, or by twicesafe_chaos_enter() in a process that is forked and not executed.
 * Monotonic clocks are left alone. Where a deadline by the wall clock is handed over, it is turned back into true time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct world {
    volatile int64_t offset;  /* of the wall clock, nanoseconds */
    volatile int64_t delay;   /* of each flush to the disk, nanoseconds */
    int64_t flushes;          /* that were delayed */
    int64_t nanoseconds;      /* that all of them took together */
};

static struct world *world;

#define SECOND 1000000000LL
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WALL_CLOCK_BEGINS 1000000000 /* seconds: what is later than 2001 is not a machine's time since it started */

int twicesafe_chaos_enter(const char *path) {
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return -1;
    void *mapped = mmap(NULL, sizeof(struct world), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return -1;
    world = mapped;
    return 0;
}

__attribute__((constructor)) static void enter(void) {
    const char *path = getenv("TWICESAFE_CHAOS_WORLD");
    if (path != NULL && twicesafe_chaos_enter(path) != 0) abort();
}

static int64_t offset(void) { return world == NULL ? 0 : world->offset; }

static struct timespec moved(struct timespec at, int64_t by) {
    int64_t all = at.tv_sec * SECOND + at.tv_nsec + by;
    struct timespec result = {all / SECOND, all % SECOND};
    return result;
}

static int (*real_clock_gettime)(clockid_t, struct timespec *);

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (real_clock_gettime == NULL) real_clock_gettime = REAL(clock_gettime);
    int status = real_clock_gettime(clock, at);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) *at = moved(*at, offset());
    return status;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL) *at = now.tv_sec;
    return now.tv_sec;
}

static struct timespec truly(const struct timespec *until) {
    return until->tv_sec < WALL_CLOCK_BEGINS ? *until : moved(*until, -offset());
}

int pthread_cond_timedwait(pthread_cond_t *restrict it, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    /* Of its two versions the newer one is meant, which dlsym does not promise. */
    if (real == NULL) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (real == NULL) real = REAL(pthread_cond_timedwait);
    struct timespec true_until = truly(until);
    return real(it, mutex, &true_until);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    struct timespec true_until = truly(until);
    return REAL(pthread_mutex_timedlock)(mutex, &true_until);
}

int sem_timedwait(sem_t *restrict it, const struct timespec *restrict until) {
    struct timespec true_until = truly(until);
    return REAL(sem_timedwait)(it, &true_until);
}

static void wait_for_the_disk(int64_t began) {
    struct timespec now;
    /* Read once: it may end meanwhile. */
    int64_t delay = world == NULL ? 0 : world->delay;
    if (delay <= 0) return;
    int of_the_flush = errno;
    struct timespec pause = {delay / SECOND, delay % SECOND};
    /* Databases wake each other by signals, and each would end it early. */
    while (nanosleep(&pause, &pause) != 0 && errno == EINTR) continue;
    errno = of_the_flush;
    real_clock_gettime(CLOCK_MONOTONIC, &now);
    /* In this order: whoever reads a number has the time that it took. */
    __atomic_add_fetch(&world->nanoseconds, now.tv_sec * SECOND + now.tv_nsec - began, __ATOMIC_RELEASE);
    __atomic_add_fetch(&world->flushes, 1, __ATOMIC_RELEASE);
}

static int64_t monotonic(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

int fsync(int file) {
    int64_t began = monotonic();
    int status = REAL(fsync)(file);
    wait_for_the_disk(began);
    return status;
}

int fdatasync(int file) {
    int64_t began = monotonic();
    int status = REAL(fdatasync)(file);
    wait_for_the_disk(began);
    return status;
}
