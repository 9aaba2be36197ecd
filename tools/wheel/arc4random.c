/* tools/wheel/arc4random.c: for the command in a wheel, which has the C++ runtime linked in. The runtime's
 * std::random_device, which nothing here uses, would take arc4random of glibc 2.36, and the wheel is for 2.34. */
#include <stdint.h>
#include <sys/random.h>

uint32_t arc4random(void) {
  uint32_t number = 0;
  return getrandom(&number, sizeof number, 0) == sizeof number ? number : 0;
}
