// Random legal cases over the whole space of problems, schedules and steps.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"
#include "tools/splitkv/inputs.hpp"

namespace splitkv::testing_support {

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}

  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool one_in(int n) { return between(1, n) == 1; }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[between(0, int(choices.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

struct Case {
  Problem problem;
  Schedule schedule;
  std::vector<int32_t> kv_len;
  tool::StepForm form;
};

// The first legal case of this seed's stream.
Case draw_case(uint64_t seed, const Target& target);

// Another step of the same kernels: other lengths, another form, other splits or blocks.
void redraw_step(Draw& draw, Case& c);

// How often each value of each option was drawn.
using Drawn = std::map<std::string, int>;
void count(const Case& c, Drawn& drawn);

// What every few hundred cases are sure to draw on that target: "mask=tree", "q=fp16", ...
std::vector<std::string> all_values(const Target& target);

}  // namespace splitkv::testing_support
