// A child of fork goes on with the CPU target, with what it inherited and with what it makes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tests/api/decode_case.hpp"

using namespace splitkv::testing_support;

namespace {

// The exit status of a child that runs `body`; 128 + signal where one ended it. One that hangs is
// ended after a minute.
int status_of_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  EXPECT_GT(child, 0);
  int state = 0;
  waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

bool is_right(const splitkv_kernel* kernel, DecodeCase& step) {
  step.out.fill(0);
  step.lse.fill(0);
  return splitkv_run(kernel, &step.binding, &step.args, nullptr, nullptr) == SPLITKV_OK &&
         errors_of(step).out <= 1e-5 && errors_of(step).lse <= 1e-5;
}

TEST(Fork, AChildRunsInheritedKernelsAndPreparesNewOnesAndSoDoesItsOwnChild) {
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.threads = 3;
  RuntimeOwner runtime = open_runtime(&options);
  KernelOwner kernel;
  DecodeCase step({200, 0, 333, 64});
  ASSERT_TRUE(prepare(runtime.get(), "cpu", step.problem, "splits=5 reduce=kernel", &kernel).ok());
  ASSERT_TRUE(step.attach(kernel.get()).ok());
  ASSERT_TRUE(is_right(kernel.get(), step));

  const auto go_on = [&] {
    if (!is_right(kernel.get(), step)) return 1;
    KernelOwner made;
    if (!prepare(runtime.get(), "cpu", step.problem, "splits=2 reduce=last_block", &made).ok()) {
      return 2;
    }
    DecodeCase fresh({7, 90});
    if (!fresh.attach(made.get()).ok() || !is_right(made.get(), fresh)) return 3;
    return 0;
  };
  const int status = status_of_child([&] {
    if (const int failed = go_on()) return failed;
    if (status_of_child(go_on) != 0) return 4;
    // Handles end in the child as well; threads that it never had are not waited for.
    kernel.reset();
    runtime.reset();
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(is_right(kernel.get(), step)) << "the parent's own threads go on";
}

}  // namespace
