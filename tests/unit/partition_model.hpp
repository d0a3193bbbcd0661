// The partition rules of codegen/launch_shape.hpp in plain arithmetic: which block takes which
// tiles of which sequence, in which slot its partial lies. Written from the rules alone, as a model
// that the emitted kernels and the sizes of the buffers are held against.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compiler/schedule.hpp"

namespace splitkv::testing_support {

struct Piece {
  int64_t sequence = 0;
  int64_t block = 0;
  int64_t slot = 0;
  std::vector<int64_t> tiles;  // counted from the sequence's first tile; none for an empty sequence
};

// Pieces of fixed and strided partitions.
inline std::vector<Piece> pieces_by_splits(const Schedule& schedule,
                                           const std::vector<int64_t>& tiles) {
  std::vector<Piece> pieces;
  for (int64_t seq = 0; seq < int64_t(tiles.size()); ++seq) {
    const int64_t count = tiles[size_t(seq)];
    const int64_t active = std::min<int64_t>(schedule.splits, std::max<int64_t>(1, count));
    for (int64_t s = 0; s < active; ++s) {
      const int64_t block = seq * schedule.splits + s;
      Piece piece{seq, block, block / schedule.cluster, {}};  // a cluster has one slot
      if (schedule.partition == Partition::strided) {
        for (int64_t t = s; t < count; t += active) piece.tiles.push_back(t);
      } else {
        for (int64_t t = s * count / active; t < (s + 1) * count / active; ++t)
          piece.tiles.push_back(t);
      }
      pieces.push_back(piece);
    }
  }
  return pieces;
}

// Pieces of the flat partition: unit by unit along the line.
inline std::vector<Piece> pieces_of_line(const Schedule& schedule,
                                         const std::vector<int64_t>& tiles) {
  std::vector<int64_t> first_unit = {0};
  for (int64_t count : tiles) first_unit.push_back(first_unit.back() + std::max<int64_t>(1, count));
  const int64_t total = first_unit.back(), used = std::min<int64_t>(schedule.blocks, total);
  std::vector<Piece> pieces;
  for (int64_t block = 0; block < used; ++block) {
    const int64_t begin = block * total / used, end = (block + 1) * total / used;
    for (int64_t seq = 0; seq < int64_t(tiles.size()); ++seq) {
      const int64_t low = std::max(begin, first_unit[size_t(seq)]);
      const int64_t high = std::min(end, first_unit[size_t(seq) + 1]);
      if (low >= high) continue;
      const bool starts_at_or_before = first_unit[size_t(seq)] <= begin;
      Piece piece{seq, block, 2 * block + (starts_at_or_before ? 0 : 1), {}};
      for (int64_t unit = low; unit < high; ++unit)
        if (tiles[size_t(seq)] > 0) piece.tiles.push_back(unit - first_unit[size_t(seq)]);
      pieces.push_back(piece);
    }
  }
  return pieces;
}

// `tiles`: tiles of every sequence, in sequence order.
inline std::vector<Piece> pieces_of(const Schedule& schedule, const std::vector<int64_t>& tiles) {
  return schedule.partition == Partition::flat ? pieces_of_line(schedule, tiles)
                                               : pieces_by_splits(schedule, tiles);
}

}  // namespace splitkv::testing_support
