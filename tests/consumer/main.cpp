// tests/consumer/main.cpp: a user's program around the README's C++ example (readme.cpp, cut out of README.md).
#include <falchion/falchion.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

falchion::Status attend(void* q, void* k, void* v, void* o);

int main() {
  const std::size_t count = 1024 * 8 * 128;
  std::vector<std::uint16_t> q(count, 0x3F00), k(count, 0x3E80), v(count, 0x3FC0), o(count, 0xFFFF);  // bf16
  if (const falchion::Status status = attend(q.data(), k.data(), v.data(), o.data()); !status) {
    std::printf("refused: %s\n", status.why.c_str());
    return 1;
  }
  for (const std::uint16_t x : o) {  // Each element is a weighted mean of 1.5s.
    if (x == 0x3FC0) continue;
    std::printf("expected 1.5, got bits %04x\n", x);
    return 1;
  }
  std::printf("falchion %s: ok\n", falchion::version());
}
