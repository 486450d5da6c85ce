/* What goes to our standard output and error: threads write it, so that a reader who has stalled
 * stalls neither signals nor timeouts. Output that is a pipe or a terminal cannot be made
 * non-blocking instead: other processes share it.
 *
 * One thread and one queue for each, but only one where both are the same file: its lines stay
 * whole and in order. run_output_room tells the supervisor when to stop reading what ranks write.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { QUEUE_BYTES = 128 * 1024 }; /* a full queue: what is read from ranks waits */

struct queue {
    /* immutable after run_output_open */
    int fd;
    int written; /* eventfd: a write has ended */
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t filled;
    char *bytes;
    size_t nbytes, capacity;
    size_t nwriting; /* taken by the thread, not yet written */
    int error;       /* of the write that failed, after which nothing more is written; 0: none */
};

static struct queue queues[2] = {
    {.lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER, .written = -1},
    {.lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER, .written = -1}};
static int nqueues; /* 0: not open */

static struct queue *queue_of(int fd)
{
    return &queues[nqueues == 2 && fd == STDERR_FILENO];
}

/* 0, or an errno value: EPIPE where whoever read our output has gone. */
static int write_all(int fd, const char *bytes, size_t nbytes)
{
    while (nbytes) {
        const ssize_t n = write(fd, bytes, nbytes);
        if (n < 0 && errno == EAGAIN) {
            /* Whoever gave us our output has made it non-blocking. */
            if (poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1) < 0 && errno != EINTR)
                return errno;
            continue;
        }
        if (n < 0 && errno != EINTR) return errno;
        if (n < 0) continue;
        bytes += n;
        nbytes -= (size_t)n;
    }
    return 0;
}

static void *keep_writing(void *argument)
{
    struct queue *queue = argument;
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (!queue->nbytes) pthread_cond_wait(&queue->filled, &queue->lock);
        char *bytes = queue->bytes;
        const size_t nbytes = queue->nwriting = queue->nbytes;
        queue->bytes = NULL;
        queue->nbytes = queue->capacity = 0;
        pthread_mutex_unlock(&queue->lock);
        const int error = write_all(queue->fd, bytes, nbytes);
        free(bytes);
        pthread_mutex_lock(&queue->lock);
        queue->nwriting = 0;
        if (error) {
            queue->error = error;
            queue->nbytes = 0;
        }
        eventfd_write(queue->written, 1);
    }
    return NULL;
}

int run_output_open(int *written)
{
    struct stat out, err;
    const bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
                      out.st_dev == err.st_dev && out.st_ino == err.st_ino;
    *written = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (*written < 0) return errno;
    const int wanted = same ? 1 : 2;
    for (int i = 0; i < wanted; i++) {
        pthread_t thread;
        queues[i].fd = STDOUT_FILENO + i;
        queues[i].written = *written;
        const int error = pthread_create(&thread, NULL, keep_writing, &queues[i]);
        if (error) return error;
        pthread_detach(thread);
    }
    nqueues = wanted;
    return 0;
}

bool run_output_put(int fd, const char *bytes, size_t nbytes)
{
    if (!nqueues) return write_all(fd, bytes, nbytes) == 0;
    struct queue *queue = queue_of(fd);
    pthread_mutex_lock(&queue->lock);
    const size_t needed = queue->nbytes + nbytes;
    if (!queue->error && needed > queue->capacity) {
        const size_t capacity = needed > QUEUE_BYTES ? needed : QUEUE_BYTES;
        char *grown = realloc(queue->bytes, capacity);
        if (grown) {
            queue->bytes = grown;
            queue->capacity = capacity;
        }
    }
    const bool fine = !queue->error && needed <= queue->capacity;
    if (fine && nbytes) {
        memcpy(queue->bytes + queue->nbytes, bytes, nbytes);
        queue->nbytes = needed;
        pthread_cond_signal(&queue->filled);
    }
    pthread_mutex_unlock(&queue->lock);
    return fine;
}

static size_t waiting_bytes(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    const size_t nbytes = queue->nbytes + queue->nwriting;
    pthread_mutex_unlock(&queue->lock);
    return nbytes;
}

bool run_output_room(int fd)
{
    return waiting_bytes(queue_of(fd)) < QUEUE_BYTES;
}

int run_output_error(int fd)
{
    struct queue *queue = queue_of(fd);
    pthread_mutex_lock(&queue->lock);
    const int error = queue->error;
    pthread_mutex_unlock(&queue->lock);
    return error;
}

bool run_output_waits(void)
{
    return waiting_bytes(&queues[0]) || waiting_bytes(&queues[1]);
}
