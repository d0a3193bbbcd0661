// What the partition rules promise, for random lengths: every tile once, every slot once, an owner
// for every sequence, and buffers that hold it all.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "codegen/launch_shape.hpp"
#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "tests/unit/partition_model.hpp"
#include "tests/unit/random_values.hpp"

namespace splitkv {
namespace {

using namespace testing_support;

struct Case {
  Problem problem;
  Schedule schedule;
  int64_t batch = 0;
  std::vector<int64_t> tiles;  // of every sequence
  std::vector<Piece> pieces;
};

Case random_case(Engine& engine) {
  Case c;
  c.problem.kv_heads = between(engine, 1, 4);
  c.problem.q_heads = c.problem.kv_heads * between(engine, 1, 9);
  c.schedule.rows = between(engine, 1, 8);
  c.schedule.merge = coin(engine) ? Merge::mlo : Merge::lse;
  c.schedule.partial_dtype = coin(engine) ? DType::fp32 : DType::bf16;
  c.schedule.partition =
      one_of<Partition>(engine, {Partition::fixed, Partition::flat, Partition::strided});
  const bool flat = c.schedule.partition == Partition::flat;
  c.schedule.reduce = one_of<Reduce>(
      engine, {Reduce::kernel, Reduce::last_block, flat ? Reduce::kernel : Reduce::cluster});
  if (c.schedule.reduce == Reduce::cluster) c.schedule.cluster = between(engine, 2, 16);
  if (flat) {
    c.schedule.blocks = between(engine, 1, 40);
  } else {
    c.schedule.splits = c.schedule.cluster * between(engine, 1, c.schedule.cluster > 1 ? 4 : 9);
  }
  c.batch = between(engine, 1, 5);
  for (int64_t row = 0; row < c.batch; ++row) {
    const int64_t tiles = coin(engine) ? between(engine, 0, 3) : between(engine, 0, 60);
    const int per_row = c.problem.kv_heads * row_blocks(c.problem, c.schedule);
    c.tiles.insert(c.tiles.end(), size_t(per_row), tiles);
  }
  c.pieces = pieces_of(c.schedule, c.tiles);
  return c;
}

template <class Check>
void for_random_cases(Check check) {
  Engine engine(11);
  for (int i = 0; i < 1500; ++i) {
    const Case c = random_case(engine);
    SCOPED_TRACE(print(c.schedule));
    check(c);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Partition, CoversEveryTileExactlyOnce) {
  for_random_cases([](const Case& c) {
    std::map<std::pair<int64_t, int64_t>, int> visits;
    for (const Piece& piece : c.pieces)
      for (int64_t tile : piece.tiles) ++visits[{piece.sequence, tile}];
    size_t expected = 0;
    for (size_t seq = 0; seq < c.tiles.size(); ++seq)
      for (int64_t tile = 0; tile < c.tiles[seq]; ++tile, ++expected)
        ASSERT_EQ((visits[{int64_t(seq), tile}]), 1) << seq << " " << tile;
    ASSERT_EQ(visits.size(), expected) << "a tile that does not exist was taken";
  });
}

TEST(Partition, GivesASequenceWithoutTilesExactlyOneOwner) {
  for_random_cases([](const Case& c) {
    std::vector<int> owners(c.tiles.size());
    for (const Piece& piece : c.pieces) ++owners[size_t(piece.sequence)];
    for (size_t seq = 0; seq < c.tiles.size(); ++seq) {
      ASSERT_GE(owners[seq], 1) << seq;
      ASSERT_LE(owners[seq], std::max<int64_t>(1, c.tiles[seq])) << "a piece without a tile";
    }
  });
}

TEST(Partition, GivesEveryPartialASlotOfItsOwnInsideTheScratchAndACounterToEverySlice) {
  for_random_cases([](const Case& c) {
    const int cluster = c.schedule.cluster;
    std::vector<std::set<int64_t>> slots(c.tiles.size());
    for (const Piece& piece : c.pieces) slots[size_t(piece.sequence)].insert(piece.slot);
    const BufferSizes sizes = buffer_sizes(c.problem, c.schedule, c.batch);
    const int64_t statistics = exchanged_merge(c.problem, c.schedule) == Merge::lse ? 1 : 2;
    std::map<int64_t, std::vector<int64_t>> blocks;  // of each slot
    for (const Piece& piece : c.pieces) {
      if (slots[size_t(piece.sequence)].size() < 2) continue;  // finished where it is made
      blocks[piece.slot].push_back(piece.block);
      const int64_t rows_end = (piece.slot + 1) * c.schedule.rows;
      ASSERT_LE(rows_end * cluster * statistics, sizes.partial_o_offset);
      ASSERT_LE(4 * sizes.partial_o_offset +
                    rows_end * c.problem.dim_v * size_bytes(c.schedule.partial_dtype),
                sizes.scratch_bytes);
      if (c.schedule.reduce != Reduce::kernel) {
        ASSERT_LE(4 * (piece.sequence + 1) * cluster, sizes.state_bytes);
      }
    }
    for (const auto& [slot, sharing] : blocks) {
      ASSERT_LE(int64_t(sharing.size()), cluster) << "slot " << slot << " is used twice";
      ASSERT_EQ(sharing.front() / cluster, sharing.back() / cluster) << slot;
    }
  });
}

TEST(Partition, SlotsOfASequenceAreInTheOrderOfItsBlocks) {
  for_random_cases([](const Case& c) {
    std::map<int64_t, int64_t> last_slot;
    for (const Piece& piece : c.pieces) {  // pieces come in block order
      const auto [place, is_first] = last_slot.try_emplace(piece.sequence, piece.slot);
      const bool same_cluster = c.schedule.cluster > 1 && piece.slot == place->second;
      ASSERT_TRUE(is_first || same_cluster || piece.slot > place->second) << piece.slot;
      place->second = piece.slot;
    }
  });
}

TEST(Partition, EveryPieceIsOfABlockOfTheGrid) {
  for_random_cases([](const Case& c) {
    const LaunchShape shape = launch_shape(c.problem, c.schedule, c.batch);
    ASSERT_EQ(shape.sequences, int64_t(c.tiles.size()));
    ASSERT_EQ(shape.split_blocks % shape.cluster, 0);
    for (const Piece& piece : c.pieces) ASSERT_LT(piece.block, shape.split_blocks);
  });
}

TEST(Partition, TheBlockOfAFlatUnitFollowsFromItsNumber) {
  for (int64_t total = 1; total < 60; ++total)
    for (int64_t blocks = 1; blocks < 70; ++blocks)
      for (int64_t block = 0; block < blocks; ++block)
        for (int64_t unit = block * total / blocks; unit < (block + 1) * total / blocks; ++unit)
          ASSERT_EQ(((unit + 1) * blocks - 1) / total, block) << unit << " of " << total;
}

}  // namespace
}  // namespace splitkv
