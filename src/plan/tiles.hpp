// src/plan/tiles.hpp: the numbers behind the plan's decisions, in one place. Lengths are in rows and keys.
#pragma once

#include <cstdint>

namespace falchion::tiles {

// A work item is a block of query rows of one K/V head, the g query heads of a GQA group packed into rows: it reads
// each block of K and V once for all of them. 256 rows x d_v f32 of O (128 KB at 128) still lie in the L2 beside K and
// V.
inline constexpr int kMaxRows = 256;
// Shorter items pay for K and V too often, so balance does not cut below this.
inline constexpr int kMinRows = 64;
// Blocks of keys are not cut below this for the sake of packing: each moves O through the tiles once more.
inline constexpr int kMinKeys = 128;
// Items a thread should get, so that an uneven last round (causal, ragged) costs little.
inline constexpr int kItemsPerThread = 4;

// Up to this many rows a K/V head the decode kernel runs: its lanes are head dims, it reads K and V as they lie.
inline constexpr int kDecodeRows = 8;
// K/V heads that one worker takes along: 16 heads of 256 bytes are a page.
inline constexpr int kDecodeHeads = 16;

// Keys are split when threads would idle otherwise: below this share of threads busy on average.
inline constexpr double kBalance = 0.9;
inline constexpr std::int64_t kKeysPerSplit = 512;  // a part shorter than this is not worth its merge
inline constexpr int kMaxSplits = 64;

// Starting a thread's work costs some microseconds; below this many flop it does not pay.
inline constexpr double kFlopPerThread = 1e6;

// GPU: up to this many query rows a K/V head a row of the level "few" runs, one warp a CTA (decode: 1.6 to 2.3 times as
// fast as the tiles of 128 rows).
inline constexpr int kFewRows = 16;

// GPU: a part of the keys has at least this many tiles where rows are few, elsewhere as many keys as there are queries,
// between kKeysPerSplit and this: the more rows, the more partial results there are to write and read (H200, 1024
// queries and keys, 8 heads, d 128: in two parts 31 us, uncut 17.4). Over this many waves of CTAs even out by
// themselves.
inline constexpr std::int64_t kKeysPerSplitOfMany = 1024;
inline constexpr int kKeyTilesPerSplit = 2;
inline constexpr int kSplitWaves = 2;

// sm90: the row brief runs where tiles of this many rows, as the row plain has them at d 64, are at most half as many
// as there are SMs: its own, a quarter as long and two on an SM, then all run at once.
inline constexpr std::int64_t kBriefRows = 256;

// sm90: what the row mla takes of V.
inline constexpr int kMlaHeadDimV = 128;

// sm90: over this many keys the hardware deals the tiles of a band better than we (H200, d 128, causal, TFLOP/s: 8k
// keys 701 dealt by us to 667, 16k 724 to 728).
inline constexpr std::int64_t kWalkKeys = 8192;
// The same for packed and used lengths (TFLOP/s, packed, d 128, causal: 32 x 512 keys 319 to 207, 16 x 1k 431 to 336,
// of mean 1k 364 to 339, 4 x 4k 451 to 573), and how many tiles each CTA has then at least.
inline constexpr std::int64_t kWalkUnknownKeys = 2048;
inline constexpr std::int64_t kUnknownTiles = 4;

// Linear attention: sequences are cut into segments when heads alone keep fewer threads or SMs busy than this. Hopper's
// rows of 16 bits, light on the SM, come near the memory's roof on half of the SMs (H200, 64 heads of 8192 tokens, d
// 64: 77 us whole, 95 in two; in f32 412 whole, 265 in two).
inline constexpr double kLinearBusy = 0.7, kLinearBusyLight = 0.4;
inline constexpr std::int64_t kLinearChunks = 2;  // of a segment, at least: its state is written and read once more
// GPU: what a segment adds is summed before its chunks are gone over; where that keeps few SMs busy in parts of so many
// tokens or more, four at most (H200, 32 heads of 8192 tokens, d 64, two segments: 61 us, with two parts 56).
inline constexpr std::int64_t kLinearPart = 1024;
inline constexpr int kLinearParts = 4;
// sm90, f32, d 128: a CTA with all columns of a head takes so much longer than one of two with half of them, for as
// many tokens (H200, 4096 tokens: 213 us of the others, 285 of one such CTA, 607 of two, one after the other). Where
// all end sooner with such CTAs, they are taken.
inline constexpr double kLinearWide = 1.4;

inline constexpr std::int64_t kAlign = 64;  // bytes: a cache line, an AMX row

}  // namespace falchion::tiles
