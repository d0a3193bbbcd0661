#include "join.hpp"

namespace context_parallel {

Joiner::Joiner(const Partials& partials, const splitkv::Merger& merger, Place& place, Link& link)
    : partials_(partials), merger_(merger), place_(place), link_(link) {
  const size_t bytes = partials.floats() * sizeof(float);
  pair_ = place.allocate(2 * bytes);
  all_ = place.allocate(size_t(link.size()) * bytes);
  joined_ = place.allocate(bytes);
}

float* Joiner::pair() const { return static_cast<float*>(pair_.get()); }
float* Joiner::own() const { return pair() + partials_.floats(); }
float* Joiner::joined() const { return static_cast<float*>(joined_.get()); }

void Joiner::join(float* parts, int64_t count) const {
  auto args = splitkv::sized<splitkv_merge_args>();
  args.parts = count;
  args.rows = partials_.rows;
  args.dim = partials_.dim;
  args.o = parts;
  args.s_or_m = partials_.statistic(parts);
  args.l = partials_.sum(parts);
  args.o_stride_part = args.statistics_stride_part = int64_t(partials_.floats());
  args.o_stride_row = args.out_stride_row = partials_.dim;
  args.statistics_stride_row = args.out_statistics_stride_row = 1;
  args.out = joined();
  args.out_s_or_m = partials_.statistic(joined());
  args.out_l = partials_.sum(joined());
  merger_.merge(args, place_.stream());
}

void Joiner::gather() const {
  float* all = static_cast<float*>(all_.get());
  link_.all_gather(own(), all, partials_.floats());
  join(all, link_.size());
}

void Joiner::ring() const {
  const size_t count = partials_.floats();
  const int rank = link_.rank(), last = link_.size() - 1;
  if (rank == 0) {
    place_.copy(joined(), own(), count * sizeof(float));
  } else {
    link_.receive(pair(), count, rank - 1);
    join(pair(), 2);
  }
  if (last == 0) return;
  if (rank != last) link_.send(joined(), count, rank + 1);
  // Once more round: from the last to 0, and on to the last but one.
  if (rank == last) {
    link_.send(joined(), count, 0);
    return;
  }
  link_.receive(joined(), count, rank == 0 ? last : rank - 1);
  if (rank + 1 != last) link_.send(joined(), count, rank + 1);
}

}  // namespace context_parallel
