// C API of splitkv_deploy.h: packs, many kernels at once, decisions.
#include "runtime/splitkv_deploy.h"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "runtime/c_api_support.hpp"
#include "runtime/prepare_many.hpp"

using splitkv::answer;
using splitkv::invalid_argument;
using splitkv::not_null;
using splitkv::Outcome;
using splitkv::PrepareHooks;
using splitkv::PrepareLimits;
using splitkv::PrepareRequest;
using splitkv::Result;
using splitkv::Unit;

namespace {

// Item i of an array whose items say their size themselves.
template <class Item>
Item* item_at(Item* items, size_t i) {
  using Byte = std::conditional_t<std::is_const_v<Item>, const char, char>;
  return reinterpret_cast<Item*>(reinterpret_cast<Byte*>(items) + i * items->size);
}

Result<std::vector<PrepareRequest>> read_items(const char* device,
                                               const splitkv_prepare_item* items, size_t count) {
  std::vector<PrepareRequest> requests;
  if (count == 0) return requests;
  if (Outcome given = not_null(items, "items"); !given) return given.error();
  if (items->size < sizeof(splitkv_prepare_item)) {
    return invalid_argument(
        fmt::format("items[0].size={} is no size of this struct; {} would fit: start from "
                    "SPLITKV_INIT",
                    items->size, sizeof(splitkv_prepare_item)));
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string name = fmt::format("items[{}]", i);
    const splitkv_prepare_item* given = item_at(items, i);
    if (given->size != items->size) {
      return invalid_argument(
          fmt::format("{}.size={} differs from items[0].size={}; equal ones "
                      "would fit",
                      name, given->size, items->size));
    }
    const auto item = splitkv::read_struct(given, name.c_str());
    if (!item) return item.error();
    if (Outcome has = not_null(item->problem, (name + ".problem").c_str()); !has) {
      return has.error();
    }
    if (!splitkv::is_usable(item->message)) {
      return invalid_argument(
          fmt::format("{}.message->size={} is no size of this struct; {} would "
                      "fit: start from SPLITKV_INIT",
                      name, item->message->size, sizeof(splitkv_message)));
    }
    const auto workload = splitkv::read_workload(item->workload);
    if (!workload) return invalid_argument(name + ": " + workload.error().message);
    requests.push_back({device, item->problem, *workload, item->schedule});
  }
  return requests;
}

struct ManyOptions {
  PrepareLimits limits;
  PrepareHooks hooks;
};

Result<ManyOptions> read_many_options(const splitkv_many_options* given) {
  if (given == nullptr) return ManyOptions{};
  const auto read = splitkv::read_struct(given, "options");
  if (!read) return read.error();
  if (read->workers < 0) {
    return invalid_argument(fmt::format(
        "options.workers={} is negative; 0 means as many as the process has cores", read->workers));
  }
  ManyOptions options;
  options.limits = {read->workers, read->memory_bytes};
  if (read->progress != nullptr) {
    options.hooks.progress = [call = read->progress,
                              user = read->user](const splitkv::PrepareProgress& progress) {
      splitkv_progress told = SPLITKV_INIT(splitkv_progress);
      told.done = progress.done;
      told.items = progress.items;
      told.seconds_left = progress.seconds_left;
      return call(user, &told) == 0;
    };
  }
  return options;
}

splitkv_plan to_c(const splitkv::PreparePlan& plan) {
  splitkv_plan filled = SPLITKV_INIT(splitkv_plan);
  filled.items = plan.items;
  filled.refused = plan.refused;
  filled.kernels = plan.kernels;
  filled.in_packs = plan.in_packs;
  filled.in_memory = plan.in_memory;
  filled.on_disk = plan.on_disk;
  filled.to_compile = plan.to_compile;
  filled.workers = plan.workers;
  filled.seconds = plan.seconds;
  filled.memory_bytes = plan.memory_bytes;
  filled.kept_bytes = plan.kept_bytes;
  return filled;
}

// Hands each item its part; the error is that of the first that failed.
Outcome hand_out(splitkv::PreparedMany& many, splitkv_prepare_item* items) {
  // Made before any is handed out, so that nothing is lost where memory ends.
  std::vector<std::unique_ptr<splitkv_kernel>> kernels(many.kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (!many.kernels[i]) continue;
    kernels[i] = std::make_unique<splitkv_kernel>();
    kernels[i]->prepared = *std::move(many.kernels[i]);
  }
  size_t failed = 0, first = 0;
  for (size_t i = kernels.size(); i-- > 0;) {
    splitkv_prepare_item* item = item_at(items, i);
    const bool is_there = kernels[i] != nullptr;
    item->kernel = kernels[i].release();
    item->status = is_there ? SPLITKV_OK : splitkv::to_c(many.kernels[i].error().status);
    splitkv::write_message(item->message,
                           is_there ? std::string_view() : many.kernels[i].error().message);
    if (!is_there) ++failed, first = i;
  }
  if (failed == 0) return Unit{};
  const splitkv::Error& error = many.kernels[first].error();
  return splitkv::Error{error.status,
                        fmt::format("{} of {} items are not prepared; the first is items[{}]: {}",
                                    failed, kernels.size(), first, error.message)};
}

}  // namespace

extern "C" {

splitkv_status splitkv_open_pack(splitkv_runtime* runtime, const char* path,
                                 splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(runtime, "runtime"); !given) return given;
    if (Outcome given = not_null(path, "path"); !given) return given;
    return runtime->kernels.add_pack_file(path);
  });
}

splitkv_status splitkv_open_pack_memory(splitkv_runtime* runtime, const void* data, size_t bytes,
                                        splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(runtime, "runtime"); !given) return given;
    if (Outcome given = not_null(data, "data"); !given) return given;
    return runtime->kernels.add_pack({static_cast<const char*>(data), bytes}, "in memory");
  });
}

splitkv_status splitkv_plan_many(splitkv_runtime* runtime, const char* device,
                                 const splitkv_prepare_item* items, size_t count,
                                 const splitkv_many_options* options, splitkv_plan* plan,
                                 splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(runtime, "runtime"); !given) return given;
    if (Outcome given = not_null(device, "device"); !given) return given;
    if (Outcome given = not_null(plan, "plan"); !given) return given;
    const auto requests = read_items(device, items, count);
    if (!requests) return requests.error();
    const auto chosen = read_many_options(options);
    if (!chosen) return chosen.error();
    const auto kind = std::string_view(device).starts_with("cpu") ? splitkv::TargetKind::cpu
                                                                  : splitkv::TargetKind::cuda;
    return splitkv::write_struct(
        to_c(plan_of(locate_many(runtime->kernels, *requests), kind, chosen->limits)), plan,
        "plan");
  });
}

splitkv_status splitkv_prepare_many(splitkv_runtime* runtime, const char* device,
                                    splitkv_prepare_item* items, size_t count,
                                    const splitkv_many_options* options, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(runtime, "runtime"); !given) return given;
    if (Outcome given = not_null(device, "device"); !given) return given;
    const auto requests = read_items(device, items, count);
    if (!requests) return requests.error();
    const auto chosen = read_many_options(options);
    if (!chosen) return chosen.error();
    auto many = prepare_many(runtime->kernels, *requests, chosen->limits, chosen->hooks);
    return hand_out(many, items);
  });
}

splitkv_status splitkv_export_decision(const splitkv_kernel* kernel, void* data, size_t capacity,
                                       size_t* bytes, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    if (Outcome given = not_null(bytes, "bytes"); !given) return given;
    const splitkv::PreparedKernel& prepared = *kernel->prepared;
    const std::string text = encode_decision(splitkv::Decision{
        splitkv_version(), prepared.problem_text, splitkv::decision_arch(prepared.target),
        prepared.schedule_text, prepared.why});
    *bytes = text.size();
    if (data != nullptr && capacity >= text.size()) std::memcpy(data, text.data(), text.size());
    return Unit{};
  });
}

splitkv_status splitkv_prepare_decided(splitkv_runtime* runtime, const char* device,
                                       const char* problem, const void* data, size_t bytes,
                                       splitkv_kernel** kernel, splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    *kernel = nullptr;
    if (Outcome given = not_null(runtime, "runtime"); !given) return given;
    if (Outcome given = not_null(device, "device"); !given) return given;
    if (Outcome given = not_null(problem, "problem"); !given) return given;
    if (Outcome given = not_null(data, "data"); !given) return given;
    const auto decision = splitkv::decode_decision({static_cast<const char*>(data), bytes});
    if (!decision) return decision.error();
    auto prepared = runtime->kernels.prepare(
        {.device = device, .problem = problem, .workload = {}, .decision = &*decision});
    if (!prepared) return prepared.error();
    *kernel = new splitkv_kernel{*std::move(prepared)};
    return Unit{};
  });
}

}  // extern "C"
