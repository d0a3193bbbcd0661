// A stand-in for libsplitkv_cpu, the CPU compiler, without LLVM: any IR compiles at once to entries
// that do nothing, unless a test says otherwise. Tests open it as SPLITKV_CPU_LIBRARY and link it
// to give orders. Thread-safe.
#pragma once

namespace fake_cpu_compiler {

// As at the start: compiles are neither held nor refused, and none was begun.
__attribute__((visibility("default"))) void reset();

// From now on compiles do not end until let_go().
__attribute__((visibility("default"))) void hold();
__attribute__((visibility("default"))) void let_go();

// From now on compiles fail with this log; null: they do not.
__attribute__((visibility("default"))) void refuse(const char* log);

__attribute__((visibility("default"))) int begun();  // compiles, since the start
// Returns when so many compiles were begun; false: not within ten seconds.
__attribute__((visibility("default"))) bool wait_until_begun(int count);

__attribute__((visibility("default"))) int live_codes();  // loaded and not yet released

}  // namespace fake_cpu_compiler
