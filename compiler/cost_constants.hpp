// The constants of the cost model (compiler/cost_model.hpp). Times are in microseconds and sizes in
// bytes. The defaults were fitted on an H200 to sweeps of `splitkv bench` by tools/fit_cost_model,
// which prints this table anew; those marked "set" no sweep so far tells apart, and they are
// estimates.
#pragma once

namespace splitkv {

struct CostConstants {
  // Begin and end of a grid.
  double launch_us = 1.41;         // from the end of the grid before to the first instruction
  double early_launch_us = 0.517;  // what programmatic launches save of it
  double large_cluster_us = 2.6;   // what they cost clusters of more than 2 blocks instead
  double start_us = 1.01;          // to the first tile
  double flat_us = 1.37;           // finding a flat block's place among the rows
  double sequence_us = 1.31;       // a further sequence of a flat block, one block on an SM
  double join_us = 0.814;          // the warps of a block join
  double join_read_us = 0.0047;    // for each value that a thread of it reads
  double wave_us = 3.96;           // each further wave of blocks

  // Reading.
  double peak_share = 0.996;     // of the plain read's rate that a kernel reaches at most
  double saturation = 5.59;      // how sharply it is reached: the exponent of a p-norm
  double crowding = 0.0166;      // share of it lost for each further block on an SM
  double uneven_share = 0.0256;  // of the time to read, lost where pieces differ in length
  double fill_share =
      0.123;               // lost for each part of the places for several blocks an SM left empty
  double step_us = 0.313;  // a warp's step of 16 keys, beside its operands ...
  double operand_us = 0.021;    // ... of 16 columns of K or V, each
  double panel_share = 0.984;   // of an operand's time that each further panel of rows takes
  double widening_share = 0.8;  // set: of an operand's time that 8-bit elements take beside it
  double warp_share =
      0.22;  // that a further warp on a scheduler adds to a step: from runs of a few blocks
  double latency_us = 0.6;      // set: of one load from device memory
  double simt_issue = 1.1e+03;  // set: instructions a warp of the simt family issues a microsecond
  double l2_share = 1.5;        // rate of L2 over that of device memory
  double late_share = 0.05;     // of the longest block that runs on after all others

  // Exchange.
  double last_block_us = 1.61;      // last_block: its fence and counter ...
  double round_us = 0.355;          // ... each round of rows of the joining block, a warp a row ...
  double round_partial_us = 0.107;  // ... and each partial in it
  double second_launch_us = 2.27;   // a reduce kernel; programmatic launches save early_reduce_us
  double early_reduce_us = 0.444;
  double kernel_partial_us = 0.0968;
  double cluster_us = 1.12;            // the blocks of a cluster join
  double cluster_block_us = 0.104;     // for each of them
  double cluster_value_us = 0.102;     // each value of the rows that a thread of a block would hold
  double clusters_us = 2.63;           // several clusters of a sequence join ...
  double clusters_partial_us = 0.104;  // ... and each of them
};

}  // namespace splitkv
