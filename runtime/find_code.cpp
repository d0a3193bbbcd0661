// Where the code of a request is found: the parts of it that both platforms share.
#include <fmt/format.h>

#include "runtime/platform.hpp"

namespace splitkv {

const char* name(Origin origin) {
  switch (origin) {
    case Origin::compiled:
      return "compiled";
    case Origin::disk:
      return "disk";
    case Origin::memory:
      return "memory";
    case Origin::pack:
      return "pack";
  }
  return "?";
}

Error jit_is_off(const KernelKey& key, const std::string& why) {
  return {
      Status::not_prepared,
      fmt::format("kernel {} is neither in a pack nor in memory nor on disk, and SPLITKV_NO_JIT "
                  "forbids compiling it ({}); a pack of `splitkv pack` with this problem, "
                  "schedule and architecture would fit",
                  key.digest, why)};
}

bool only_packs(const Services& services) {
  return jit_is_forbidden(services.options) &&
         cache_place(services.options, read_environment()).folder.empty();
}

std::shared_ptr<const PackedKernel> find_packed(Services& services, const LoadRequest& request,
                                                const std::string& arch) {
  if (services.packs.is_empty()) return nullptr;
  const KernelKey key = pack_key(request.source, arch);
  auto found = services.packs.find(key);
  if (found == nullptr) {
    services.log.info(
        fmt::format("kernel {} is in no pack: {}", key.digest,
                    services.packs.explain_miss(key, request.problem, request.schedule)));
  }
  return found;
}

Origin origin_of(Services& services, const KernelKey& key) {
  return services.disk.find(key) ? Origin::disk : Origin::compiled;
}

Result<DiskCache::Found> find_or_make(Services& services, const KernelSource& source,
                                      const KernelKey& key, const DiskCache::Make& make) {
  Result<DiskCache::Found> found = Error{};
  if (jit_is_forbidden(services.options)) {
    auto kept = services.disk.find(key);
    if (!kept) {
      services.counters.count_miss();
      return jit_is_off(key,
                        "its key is that of " + std::string(key_word(key_head(key), "compiler")));
    }
    found = *std::move(kept);
  } else {
    found = services.disk.get(key, source, make);
  }
  if (!found || !found->from_disk) services.counters.count_miss();
  if (found && found->from_disk) {
    services.counters.count_disk_hit(found->disk_ms);
    services.log.debug(fmt::format("found {} on disk in {:.2f} ms", key.digest, found->disk_ms));
  }
  return found;
}

}  // namespace splitkv
