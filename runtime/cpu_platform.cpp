// The CPU side of the runtime: compiled modules by key, and runs over the library's thread pool or
// the caller's parallel_for.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/cpu/cpu_module.hpp"
#include "runtime/cpu/host.hpp"
#include "runtime/cpu/workers.hpp"
#include "runtime/platform.hpp"
#include "runtime/saved_source.hpp"
#include "runtime/single_flight.hpp"

namespace splitkv {
namespace {

// How blocks are spread over threads; shared by all kernels of a runtime, which it may outlive.
class Spread {
 public:
  explicit Spread(const RuntimeOptions& options)
      : call_(options.parallel_for), user_(options.parallel_for_user) {
    if (call_ != nullptr) return;
    const int threads = options.threads > 0 ? options.threads : usable_threads();
    workers_ = std::make_unique<Workers>(threads);
  }

  void parallel_for(int64_t n, void (*body)(void* context, int64_t i), void* context) const {
    if (call_ != nullptr) {
      call_(user_, n, body, context);
    } else {
      workers_->parallel_for(n, body, context);
    }
  }

 private:
  void (*call_)(void*, int64_t, void (*)(void*, int64_t), void*);
  void* user_;
  std::unique_ptr<Workers> workers_;
};

// One grid of blocks as the context of parallel_for's body.
struct Grid {
  CpuModule::Entry entry;
  const LaunchArgs* args;

  static void run_block(void* context, int64_t block) {
    const Grid& grid = *static_cast<const Grid*>(context);
    grid.entry(grid.args, block);
  }
};

// Rows of a merge, some at a time.
struct MergeRows {
  static constexpr int64_t kAtOnce = 16;
  using Entry = void (*)(const MergeArgs* args, int64_t first_row, int64_t end_row);

  Entry entry;
  const MergeArgs* args;

  static void run(void* context, int64_t i) {
    const MergeRows& rows = *static_cast<const MergeRows*>(context);
    rows.entry(rows.args, i * kAtOnce, std::min((i + 1) * kAtOnce, rows.args->rows));
  }
};

// Tokens of an append, some at a time.
struct AppendTokens {
  static constexpr int64_t kAtOnce = 8;
  using Entry = void (*)(const AppendArgs* args, int64_t first_token, int64_t end_token);

  Entry entry;
  const AppendArgs* args;

  static void run(void* context, int64_t i) {
    const AppendTokens& tokens = *static_cast<const AppendTokens*>(context);
    tokens.entry(tokens.args, i * kAtOnce, std::min((i + 1) * kAtOnce, tokens.args->tokens));
  }
};

class CpuErrorMemory final : public ErrorMemory {
 public:
  ErrorRecord* host() const override { return record_.get(); }
  ErrorRecord* device() const override { return record_.get(); }

 private:
  std::unique_ptr<ErrorRecord> record_ = std::make_unique<ErrorRecord>();
};

class CpuCode final : public LoadedCode {
 public:
  CpuCode(std::shared_ptr<const CpuModule> module, std::shared_ptr<const Spread> spread)
      : module_(std::move(module)), spread_(std::move(spread)) {}

  CodeFacts facts() const override { return {.module_bytes = module_->code_bytes()}; }

  Outcome run(const LaunchArgs& args, const LaunchShape& shape, void*) const override {
    Grid split{module_->split(), &args};
    spread_->parallel_for(shape.split_blocks, &Grid::run_block, &split);
    if (shape.reduce_blocks > 0) {
      Grid reduce{module_->reduce(), &args};
      spread_->parallel_for(shape.reduce_blocks, &Grid::run_block, &reduce);
    }
    return Unit{};
  }

  Outcome run_part(const LaunchArgs& args, const LaunchShape& shape, int64_t part,
                   int64_t parts) const override {
    for (int64_t block = part; block < shape.split_blocks; block += parts) {
      module_->split()(&args, block);
    }
    return Unit{};
  }

  Outcome zero(void* data, size_t bytes, void*) const override {
    std::memset(data, 0, bytes);
    return Unit{};
  }

  Outcome merge(const MergeArgs& args, void*) const override {
    // The entry of merge code has a third parameter.
    MergeRows rows{reinterpret_cast<MergeRows::Entry>(reinterpret_cast<void*>(module_->split())),
                   &args};
    const int64_t parts = (args.rows + MergeRows::kAtOnce - 1) / MergeRows::kAtOnce;
    spread_->parallel_for(parts, &MergeRows::run, &rows);
    return Unit{};
  }

  Outcome append(const AppendArgs& args, int64_t, void*) const override {
    AppendTokens tokens{
        reinterpret_cast<AppendTokens::Entry>(reinterpret_cast<void*>(module_->split())), &args};
    const int64_t parts = (args.tokens + AppendTokens::kAtOnce - 1) / AppendTokens::kAtOnce;
    spread_->parallel_for(parts, &AppendTokens::run, &tokens);
    return Unit{};
  }

 private:
  std::shared_ptr<const CpuModule> module_;
  std::shared_ptr<const Spread> spread_;
};

class CpuPlatform final : public Platform {
 public:
  explicit CpuPlatform(Services& services) : services_(services) {}

  Result<Target> target_of(const std::string& device) override {
    return resolve_cpu_target(device, services_.options.threads);
  }

  Result<Loaded> load(const LoadRequest& request) override {
    const Result<CpuCompiler> compiler = cpu_compiler(request.target);
    if (!compiler) return compiler.error();
    const CompilerFacts facts = facts_of(*compiler, request.target);
    Loaded loaded;
    const auto packed = find_packed(services_, request, facts.arch);
    if (packed == nullptr && only_packs(services_)) return missed(request, facts);
    loaded.key = packed != nullptr ? packed->key : kernel_key(request.source, facts);
    const auto module = modules_.get(loaded.key.digest, [&] {
      return packed != nullptr ? unpack(request, *packed) : obtain(request, loaded.key);
    });
    if (!module) return module.error();
    const Kept& kept = module->value;
    loaded.compile_ms = kept.compile_ms;
    loaded.origin = module->made ? kept.origin : Origin::memory;
    if (!module->made) services_.counters.count_hit();
    if (loaded.origin == Origin::disk) loaded.disk_ms = kept.disk_ms;
    loaded.code = std::make_shared<const CpuCode>(kept.module, spread());
    return loaded;
  }

  Result<Located> locate(const LoadRequest& request) override {
    const Result<CpuCompiler> compiler = cpu_compiler(request.target);
    if (!compiler) return compiler.error();
    const CompilerFacts facts = facts_of(*compiler, request.target);
    if (const auto packed = find_packed(services_, request, facts.arch)) {
      return Located{packed->key, Origin::pack};
    }
    if (only_packs(services_)) return missed(request, facts);
    KernelKey key = kernel_key(request.source, facts);
    const Origin origin = modules_.has(key.digest) ? Origin::memory : origin_of(services_, key);
    return Located{std::move(key), origin};
  }

  Result<std::shared_ptr<const ErrorMemory>> make_error_memory(const std::string&) override {
    return std::shared_ptr<const ErrorMemory>(std::make_shared<const CpuErrorMemory>());
  }

 private:
  struct Kept {
    std::shared_ptr<const CpuModule> module;
    double compile_ms = 0;
    Origin origin = Origin::compiled;
    double disk_ms = 0;
  };

  Error missed(const LoadRequest& request, const CompilerFacts& facts) const {
    const KernelKey key = pack_key(request.source, facts.arch);
    return jit_is_off(key, services_.packs.explain_miss(key, request.problem, request.schedule) +
                               "; there is no disk cache");
  }

  Result<Kept> unpack(const LoadRequest& request, const PackedKernel& packed) {
    Result<CpuModule> module = load(packed.code, request);
    if (!module) return module.error();
    services_.counters.count_pack_hit();
    return Kept{std::make_shared<const CpuModule>(*std::move(module)), packed.code.compile_ms,
                Origin::pack};
  }

  Result<Kept> obtain(const LoadRequest& request, const KernelKey& key) {
    const auto compile = [&] { return compile_counted(request, key); };
    Result<DiskCache::Found> found = find_or_make(services_, request.source, key, compile);
    if (!found) return found.error();
    Result<CpuModule> module = load(found->code, request);
    if (!module && found->from_disk) {
      services_.log.warning(fmt::format("the object of {} on disk is not taken: {}", key.digest,
                                        module.error().message));
      if (jit_is_forbidden(services_.options))
        return jit_is_off(key, "the object on disk is damaged");
      const Result<StoredCode> anew = compile();
      if (!anew) return anew.error();
      services_.disk.replace(key, request.source, *anew);
      found = DiskCache::Found{*anew};
      module = load(*anew, request);
    }
    if (!module) return module.error();
    return Kept{std::make_shared<const CpuModule>(*std::move(module)), found->code.compile_ms,
                found->from_disk ? Origin::disk : Origin::compiled, found->disk_ms};
  }

  static Result<CpuModule> load(const StoredCode& code, const LoadRequest& request) {
    return load_cpu(code.images.front(), request.source, request.target);
  }

  Result<StoredCode> compile_counted(const LoadRequest& request, const KernelKey& key) {
    Result<CpuObject> object = compile_cpu_object(request.source, request.target);
    if (!object) {
      services_.counters.count_failure();
      Error error = object.error();
      if (error.status == Status::compile_failed) {
        error.message += "\nsource: " + save_source(request.source);
      }
      return error;
    }
    services_.counters.count_compile(object->compile_ms);
    services_.log.info(fmt::format("compiled {} for {} with LLVM in {:.0f} ms", key.digest,
                                   print(request.target), object->compile_ms));
    return StoredCode{{std::move(object->bytes)}, "", object->compile_ms};
  }

  // Threads are started when the first CPU kernel is prepared.
  std::shared_ptr<const Spread> spread() {
    const std::lock_guard lock(spread_mutex_);
    if (spread_ == nullptr) spread_ = std::make_shared<const Spread>(services_.options);
    return spread_;
  }

  Services& services_;
  SingleFlight<Kept> modules_;
  std::mutex spread_mutex_;
  std::shared_ptr<const Spread> spread_;
};

}  // namespace

std::unique_ptr<Platform> make_cpu_platform(Services& services) {
  return std::make_unique<CpuPlatform>(services);
}

}  // namespace splitkv
