#include "runtime/pack.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "runtime/sections.hpp"
#include "runtime/splitkv.h"

namespace splitkv {
namespace {

constexpr SectionFormat kFormat{"\x89SKP\r\n\x1a\n", 1, "packs do"};

enum Kind : uint32_t { pack_kind = 1, records_kind, key_kind, facts_kind, image_kind };

Error bad(std::string why) { return invalid_argument(std::move(why)); }

std::string facts_of(const PackedKernel& kernel) {
  return fmt::format("problem={}\nschedule={}\ncompiler={}\nresources={}\ncompile_ms={}\n",
                     kernel.problem, kernel.schedule, kernel.compiler, kernel.resources,
                     kernel.code.compile_ms);
}

Result<PackedKernel> kernel_of(std::string_view key, std::string_view facts) {
  PackedKernel kernel;
  kernel.key = key_of_pack_text(key);
  kernel.problem = key_word(facts, "problem");
  kernel.schedule = key_word(facts, "schedule");
  kernel.compiler = key_word(facts, "compiler");
  kernel.resources = key_word(facts, "resources");
  const std::string_view time = key_word(facts, "compile_ms");
  const auto [stop, fault] =
      std::from_chars(time.data(), time.data() + time.size(), kernel.code.compile_ms);
  if (fault != std::errc() || stop != time.data() + time.size())
    return bad("has a time that is none");
  return kernel;
}

// At most `most` of them, in their order.
std::string listed(const std::set<std::string>& words, size_t most = 6) {
  std::vector<std::string> shown;
  for (const std::string& word : words) {
    if (shown.size() == most) break;
    shown.push_back("[" + word + "]");
  }
  const size_t left = words.size() - shown.size();
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     left > 0 ? fmt::format(" and {} more", left) : "");
}

}  // namespace

std::string encode_pack(const Pack& pack) {
  const std::string facts = fmt::format("splitkv={}\n", pack.version);
  std::vector<std::string> texts;  // sections are views of them
  texts.reserve(pack.kernels.size());
  std::vector<Section> sections = {{pack_kind, facts}, {records_kind, pack.records}};
  for (const PackedKernel& kernel : pack.kernels) {
    texts.push_back(facts_of(kernel));
    sections.push_back({key_kind, kernel.key.text});
    sections.push_back({facts_kind, texts.back()});
    for (const std::string& image : kernel.code.images) sections.push_back({image_kind, image});
  }
  return encode_sections(kFormat, sections);
}

Result<Pack> decode_pack(std::string_view bytes) {
  const auto read = decode_sections(kFormat, bytes);
  if (!read) return read.error();
  const std::vector<Section>& sections = *read;
  const auto kind_at = [&](size_t i) { return i < sections.size() ? sections[i].kind : 0; };
  if (kind_at(0) != pack_kind || kind_at(1) != records_kind) {
    return bad("has sections in another order");
  }
  Pack pack;
  pack.version = key_word(sections[0].content, "splitkv");
  pack.records = sections[1].content;
  for (size_t i = 2; i < sections.size();) {
    if (kind_at(i) != key_kind || kind_at(i + 1) != facts_kind || kind_at(i + 2) != image_kind) {
      return bad("has sections in another order");
    }
    Result<PackedKernel> kernel = kernel_of(sections[i].content, sections[i + 1].content);
    if (!kernel) return kernel.error();
    for (i += 2; kind_at(i) == image_kind; ++i) {
      kernel->code.images.emplace_back(sections[i].content);
    }
    pack.kernels.push_back(*std::move(kernel));
  }
  return pack;
}

Result<std::string> read_pack_file(const std::string& path) {
  const auto refused = [&](const char* why) {
    return invalid_argument(fmt::format(
        "the pack {} cannot be read: {}; a file that `splitkv pack` made would fit", path, why));
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return refused("it is a folder");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return refused(std::strerror(errno));
  std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (stream.bad()) return refused("reading failed");
  return bytes;
}

Result<std::string> Packs::add(std::string_view bytes, const std::string& origin) {
  Result<Pack> pack = decode_pack(bytes);
  if (!pack) {
    return invalid_argument(
        fmt::format("the pack {} {}; one that `splitkv pack` writes anew would fit", origin,
                    pack.error().message));
  }
  if (pack->version != splitkv_version()) {
    return invalid_argument(
        fmt::format("the pack {} was made by SplitKV {} and this is {}; one that its own `splitkv "
                    "pack` makes would fit",
                    origin, pack->version, splitkv_version()));
  }
  const std::lock_guard lock(mutex_);
  for (PackedKernel& kernel : pack->kernels) {
    const std::string digest = kernel.key.digest;
    kernels_.try_emplace(digest, std::make_shared<const PackedKernel>(std::move(kernel)));
  }
  return std::move(pack->records);
}

bool Packs::is_empty() const {
  const std::lock_guard lock(mutex_);
  return kernels_.empty();
}

std::shared_ptr<const PackedKernel> Packs::find(const KernelKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(key.digest);
  if (found == kernels_.end() || found->second->key != key) return nullptr;
  return found->second;
}

std::string Packs::explain_miss(const KernelKey& key, std::string_view problem,
                                std::string_view schedule) const {
  const std::string arch(key_word(key.text, "arch"));
  std::set<std::string> schedules, archs, all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [digest, kernel] : kernels_) {
      all.insert(kernel->arch());
      if (kernel->problem != problem) continue;
      archs.insert(kernel->arch());
      if (kernel->arch() == arch) schedules.insert(kernel->schedule);
    }
  }
  if (all.empty()) return "no pack is there";
  if (schedules.contains(std::string(schedule))) {
    return fmt::format(
        "the packs hold [{}] for {}, made by a SplitKV that writes other source for it", schedule,
        arch);
  }
  if (!schedules.empty()) {
    return fmt::format(
        "the packs hold this problem for {} with the kernels of {}, and that of [{}] "
        "is asked for",
        arch, listed(schedules), schedule);
  }
  if (!archs.empty()) {
    return fmt::format("the packs hold this problem for other instructions, {}, and this is [{}]",
                       listed(archs), arch);
  }
  return fmt::format("the packs do not hold this problem; they hold others, for {}", listed(all));
}

}  // namespace splitkv
