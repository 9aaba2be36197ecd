// src/plan/constants.hpp: the constants behind the plan's decisions: limits, thresholds, and rates of its cost models.
// Lengths are numbers of rows or keys.
#pragma once

#include <cstdint>

namespace falchion::tiles {

// CPU: a work item is a block of query rows of one K/V head. The g query heads of a GQA group are packed into these
// rows, so that each block of K and V is read once for all of them. An item has at most this many rows: 256 rows x d_v
// f32 of O (128 KB at 128) still fit into the L2 beside K and V.
inline constexpr int kMaxRows = 256;
// Shorter items read K and V too often for their work, so rows are not cut below this to balance the threads.
inline constexpr int kMinRows = 64;
// Blocks of keys are not cut below this so that threads can share the packing, because each block loads and stores O
// once more.
inline constexpr int kMinKeys = 128;
// Each thread should get this many items, so that an uneven last round (causal, ragged) costs little.
inline constexpr int kItemsPerThread = 4;

// Up to this many rows per K/V head the decode kernel runs. Its lanes are head dims, and it reads K and V in place.
inline constexpr int kDecodeRows = 8;
// The most K/V heads of one work item of the decode kernel: 16 heads of 256 bytes are a page of memory.
inline constexpr int kDecodeHeads = 16;

// Keys are split if otherwise less than this share of the threads or SMs would be busy on average.
inline constexpr double kBalance = 0.9;
inline constexpr std::int64_t kKeysPerSplit = 512;  // a part shorter than this is not worth merging
inline constexpr int kMaxSplits = 64;

// Starting the work of a thread costs some microseconds, which does not pay off for less than this many flop.
inline constexpr double kFlopPerThread = 1e6;
// The same in bytes, for work that is all memory traffic: at 20 GB/s they take 13 us, as 1e6 flop do at 80 GFLOP/s.
inline constexpr double kBytesPerThread = 1 << 18;

// GPU: up to this many query rows per K/V head tile few is chosen, which has one warp per CTA. In decode it is 1.6 to
// 2.3 times as fast as tiles of 128 rows.
inline constexpr int kFewRows = 16;

// sm90: with more rows than kFewRows, of which each CTA of plain or brief has 64 or more, kind decode runs if there are
// so many keys that the time is that of reading them, and if tile brief cannot run: it is faster with 17 to 64 rows at
// head dims from 97 to 128.
inline constexpr std::int64_t kDecodeKeys = 1024;

// GPU: the shortest part of the keys. With few rows it has at least kKeyTilesPerSplit tiles of keys. Otherwise it has
// at least as many keys as there are queries, but not fewer than kKeysPerSplit, and kKeysPerSplitOfMany are always
// enough. The reason is that with more rows there are more partial results to write and read (H200, 1024 queries and
// keys, 8 heads, d 128: 31 us in two parts, 17.4 us uncut). Keys are not cut into parts beyond kSplitWaves waves of
// CTAs, because so many waves balance the load without it.
inline constexpr std::int64_t kKeysPerSplitOfMany = 1024;
inline constexpr int kKeyTilesPerSplit = 2;
inline constexpr int kSplitWaves = 2;

// sm90: tile brief is chosen if tiles of this many rows (kind plain's usual ones at d 64) are at most half as many as
// there are SMs. Its own tiles are a quarter as long and two of them fit on an SM, so that all of them run at once.
inline constexpr std::int64_t kBriefRows = 256;

// sm90: above head dim 64 tile brief is for at most so many rows for each K/V head, of which the usual tile would leave
// half empty. One query tile then reads all keys at 3.9 of 4.6 TB/s, with the usual tile at 2.65 (H200, d 128, 16
// sequences of 8192 keys).
inline constexpr std::int64_t kBriefRowsOfWide = 64;

// sm90: the largest d_v of tile mla.
inline constexpr int kMlaHeadDimV = 128;

// sm90: bytes of K and V in a section, whose tiles run side by side if tiles are drawn from a counter. The L2 of an
// H200 has 50 MB, and Q and O pass through it too. The last section may have kLastSectionBytes, since there the CTAs
// have to end together.
inline constexpr std::int64_t kSectionBytes = 16 << 20, kLastSectionBytes = 32 << 20;

// sm90, f32: kind halves first reads q, k and v and writes as many bytes, which the attention kernel reads instead.
// That pays off for enough work: kHalvesFlops in all, since two launches take some 5 us longer than one, and
// kHalvesFlopsPerByte for each byte of q, k and v. Both follow from 32 TFLOP/s of sm80's f32, 120 TFLOP/s of kind
// halves (measured with 4096 keys on an H200: 119 to 172), and 4 TB/s of the memory: a flop saves 1 / 32 - 1 / 120 ps,
// and a byte costs 2 / 4 ps.
inline constexpr double kHalvesFlops = 2e8, kHalvesFlopsPerByte = 22;

// CPU, backward pass: up to this d_qk + d_v a block has the kernel's number of keys, above it fewer. On AVX-512 K, V
// and the sums of their gradients then take 512 KB of the L2 (256 keys at d 128). Blocks of fewer keys than
// kBackwardKeys load the queries too often, even if threads are idle otherwise.
inline constexpr std::int64_t kBackwardWidth = 256;
inline constexpr int kBackwardKeys = 64;

// Linear attention: sequences are cut into segments if the heads alone keep less than this share of the threads or SMs
// busy. kLinearBusyLight is for Hopper's variants with 16-bit operands, which use little of an SM and come close to the
// memory's roof on half of the SMs (H200, 64 heads of 8192 tokens, d 64: 77 us uncut, 95 us in two segments; in f32 412
// us uncut, 265 us in two).
inline constexpr double kLinearBusy = 0.7, kLinearBusyLight = 0.4;
inline constexpr std::int64_t kLinearChunks = 2;  // at least, per segment: its state is written and read once more
// GPU: a segment's contribution to the state is summed before its chunks are computed. If this keeps few SMs busy, it
// is summed in parts of at least kLinearPart tokens, at most four per segment (H200, 32 heads of 8192 tokens, d 64, two
// segments: 61 us, and 56 us with two parts).
inline constexpr std::int64_t kLinearPart = 1024;
inline constexpr int kLinearParts = 4;
// sm90, f32, d 128: the time of a wide CTA, which has all columns of a head, relative to that of the two narrow CTAs
// that share them, for the same tokens (H200, 4096 tokens: 213 us for the narrow ones, 285 us for one wide CTA, 607 us
// for two wide ones, one after the other). Wide CTAs are chosen if the whole grid then ends sooner.
inline constexpr double kLinearWide = 1.4;

// GEMM, GPU: the cost model that compares tiles and parts of k, beside the flop_rate of each tile
// (src/tiles/gemm/tiles.def). A CTA that is meant to share an SM but has it alone takes kGemmAlone times as long as at
// that rate. kGemmTile is the microseconds for the begin and the end of a tile, on Hopper plus kGemmTileColumn for each
// of its columns, and kGemmCombine those of the kernel that adds the parts up. kGemmPartialRate is the bytes of parts
// that are written or read in a microsecond, and a part has at least kGemmLeastBlocks blocks of k. The numbers of the
// parts and of Hopper's columns follow from times of an H100 in bursts, of 1024 x 1024 x 1024, 512 x 6144 x 4096, 512 x
// 28672 x 4096 and 5120 x 5120 x 5120. All others are estimates. Up to kGemmFewRows rows of a are few.
inline constexpr std::int64_t kGemmFewRows = 64;
inline constexpr double kGemmAlone = 1.4, kGemmTile = 2, kGemmTileColumn = 0.01;
inline constexpr double kGemmCombine = 6, kGemmPartialRate = 1.5e6;
inline constexpr std::int64_t kGemmLeastBlocks = 4;
// Hopper's few, estimates too. An SM reads kFewFromMemory bytes of b from memory in a microsecond, and kFewFromL2 of a
// and b from the L2; a block of k takes kFewBlock on top of that, and at least kFewLeast, since a load takes some 1.5
// us and a narrow tile has only 8 blocks in flight. A cluster takes kFewExchange plus kFewExchangeCta for each CTA to
// add its sums up. A later candidate must be faster by the factor kFewBetter.
inline constexpr double kFewFromMemory = 25e3, kFewFromL2 = 40e3, kFewBlock = 0.08, kFewLeast = 0.19;
inline constexpr double kFewExchange = 1, kFewExchangeCta = 0.1, kFewBetter = 0.97;
inline constexpr int kFewMostCtas = 8, kFewLeastColumns = 16;  // of a cluster; of a tile

// GEMM, CPU: if threads have too few work items, items are halved, down to kGemmLeast register tiles along m or n,
// because a and b are packed again for each item. With few rows an item has at most kGemmFewColumns columns.
inline constexpr std::int64_t kGemmLeast = 4;
inline constexpr std::int64_t kGemmFewColumns = 512;

// Norms. CPU: the bytes that a work item moves, approximately. GPU: microseconds for a launch, the share of the
// memory's rate that a large norm reaches, and that rate in bytes a second if there is no device to query (H100, A100).
inline constexpr double kNormItemBytes = 1 << 16;
inline constexpr double kNormLaunch = 2.5, kNormRate = 0.85, kMemoryRateSm90 = 3.35e12, kMemoryRateSm80 = 1.55e12;

inline constexpr std::int64_t kAlign = 64;  // in bytes: the size of a cache line and of an AMX row

}  // namespace falchion::tiles
