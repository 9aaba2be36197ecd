// src/sm90/attention_backward/sums.cuh: the two warps of Hopper's backward kernel that add the tiles of dQ to the sums
// of grad_q, in a fixed order, or in any order with any_order.
#pragma once

#include "base/host_device.hpp"
#include "sm90/attention_backward/config.hpp"
#include "sm90/attention_backward/step.hpp"

namespace falchion::sm90 {

/// How many CTAs have added to a tile of sums. A relaxed load: it orders no other access.
FALCHION_DEVICE unsigned turns_passed(const unsigned* turns) {
  unsigned now;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(turns)) : "memory");
  return now;
}
/// Waits until at least `wanted` CTAs have added to a tile of sums. Each acquire empties the L1, where the spills of
/// the consumers lie, so there is only one, after the wait.
FALCHION_DEVICE void wait_for_adders(const unsigned* turns, unsigned wanted) {
  while (turns_passed(turns) < wanted) {}
  unsigned now;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(__cvta_generic_to_global(turns)) : "memory");
}
/// Lets the next CTA add, once all bulk copies of this thread have been written. The fence also stands for an acquire
/// of what turns_passed has read before.
FALCHION_DEVICE void count_as_added(unsigned* turns) {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  asm volatile("fence.proxy.async.global;" ::: "memory");
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(__cvta_generic_to_global(turns)) : "memory");
}

/// The sums of a step: its row, counted from row 0 of the first head, and the CTAs that add before this one.
struct BackwardTurn {
  std::int64_t row;
  unsigned before;

  template <class Config>
  static FALCHION_DEVICE BackwardTurn of(const BackwardTile& t, const BackwardSums& to,
                                         const BackwardStep<BackwardTile>& step) {
    const std::int64_t row0 = std::int64_t{step.tile} * Config::kRows;
    return {(step.head - t.h) * to.rows + row0,
            static_cast<unsigned>(adders_before(t.own0, row0 + to.since, Config::kKeys))};
  }
  FALCHION_DEVICE unsigned* counter(const BackwardSums& to) const { return to.turns + row / 64 * 2; }
};

/// Adds one warpgroup's part of each tile of dQ to the sums of grad_q, in f32. One thread. The CTAs of a head take
/// turns, in the order of their keys, so that the bits are the same in each run. The CTA with the first keys stores its
/// tile instead, so that the sums need not be cleared. A CTA waits only for CTAs with smaller numbers, which all GPUs
/// known to us start earlier. It asks for the next turn while a tile is being written; where CTAs are more than a step
/// apart it has then come, and costs no time. With any_order the sums have been cleared, and a CTA adds at any time.
template <class Config, class Part>
FALCHION_DEVICE void add_dq(const AttentionBackwardArgs& a, Part part, typename Config::Shared& shared) {
  if (a.grad_q.data == nullptr) return;
  const BackwardLayout layout = BackwardLayout::of(a);
  const std::uint32_t from = cute::cast_smem_ptr_to_uint(shared.dq[part]);
  BackwardSums& to = shared.to_add[part];
  unsigned parity = 0, added = 0;  // added: CTAs to the sums of a step, when they were last counted
  for_each_work<Config>(shared, [&](const BackwardWork& work) {
    const BackwardTile& t = work.tile;
    const std::int64_t row_of_head = layout.first_row(a, t.b, t.h, t.q.begin);
    to = {layout.grad_q_sums(a) + row_of_head * Config::kD + part * Config::kSizeDq,
          layout.turns(a) + row_of_head / 64 * 2 + part, layout.rows, t.mask.shift - t.mask.left};
    asm volatile("fence.proxy.async.global;" ::: "memory");  // after the kernel that has cleared the sums
    BackwardStep step(t, work.first);
    BackwardTurn turn = BackwardTurn::of<Config>(t, to, step);
    added = 0;
    CUTE_NO_UNROLL
    for (; step.there(); parity ^= 1) {
      if (!a.any_order && added < turn.before) wait_for_adders(turn.counter(to), turn.before);
      shared.full_dq[part].wait(parity);
      // Makes the consumers' writes visible to the copy. A fence may lie anywhere between write and copy, here after
      // the barrier.
      publish_to_async();
      if (!a.any_order) asm volatile("fence.proxy.async.global;" ::: "memory");  // what other CTAs have added
      const auto sums = __cvta_generic_to_global(to.sums + turn.row * Config::kD);
      if (turn.before == 0 && !a.any_order) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(sums), "r"(from),
                     "n"(Config::kSizeDq * 4)
                     : "memory");
      } else {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(sums),
                     "r"(from), "n"(Config::kSizeDq * 4)
                     : "memory");
      }
      cute::tma_store_arrive();
      unsigned* const counter = turn.counter(to);
      step.advance();
      if (step.there()) turn = BackwardTurn::of<Config>(t, to, step);
      if (!a.any_order) added = turns_passed(turn.counter(to));
      cute::tma_store_wait<0>();  // it has been read
      shared.empty_dq[part].arrive();
      if (!a.any_order) count_as_added(counter);
    }
  });
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");  // it has been written, before the CTA ends
}

}  // namespace falchion::sm90
