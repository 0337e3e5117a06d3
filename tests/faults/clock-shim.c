/* A clock that can be stepped: clock_gettime(CLOCK_REALTIME) of the process that this is preloaded into is ahead by the
 * seconds that the file $CLOCK_OFFSET_FILE holds. Every other clock is the kernel's. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
  const char *path = getenv("CLOCK_OFFSET_FILE");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return result;
  char text[32];
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length > 0) {
    text[length] = 0;
    now->tv_sec += atol(text);
  }
  return result;
}
