#include "parity/golden.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "support/sha256.h"

namespace signet::testing {
namespace {

constexpr std::string_view kFormat = "signet-golden-1";
constexpr std::string_view kFileDigest = "sha256.";

std::vector<int32_t> Integers(const OracleTensorFile& file,
                              const std::string& name) {
  const std::vector<double>& data = file.tensors.at(name).data;
  return {data.begin(), data.end()};
}

std::vector<std::vector<int32_t>> Rows(const OracleTensor& tensor) {
  const auto width = static_cast<size_t>(tensor.shape[1]);
  std::vector<std::vector<int32_t>> rows;
  for (size_t at = 0; at < tensor.data.size(); at += width) {
    const auto begin = tensor.data.begin() + static_cast<std::ptrdiff_t>(at);
    rows.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(width));
  }
  return rows;
}

}  // namespace

std::vector<int32_t> Golden::fed() const {
  return {tokens.begin(), tokens.end() - 1};
}

std::vector<int32_t> Golden::all_fed() const {
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), tokens.begin(), tokens.end() - 1);
  return all;
}

double Golden::ErrorOfTransformers(const std::string& name) const {
  return std::strtod(metadata.at("error." + name).c_str(), nullptr);
}

std::filesystem::path GoldenPath(const std::string& name) {
  return std::filesystem::path(SIGNET_SOURCE_DIR "/tests/goldens") /
         (name + ".safetensors");
}

Golden ReadGolden(const std::filesystem::path& path) {
  OracleTensorFile file = ReadOracleTensorFile(path.string());
  if (file.metadata["format"] != kFormat) {
    std::fprintf(stderr, "%s is not a golden\n", path.c_str());
    std::abort();
  }
  Golden golden;
  golden.prompt = Integers(file, "prompt_ids");
  golden.tokens = Integers(file, "tokens");
  golden.logit_positions = Integers(file, "logit_positions");
  golden.residual_positions = Integers(file, "residual_positions");
  const auto layer_tensor = [&](const char* kind, size_t layer) {
    return file.tensors.find(fmt::format("{}.{}", kind, layer));
  };
  for (size_t layer = 0;; ++layer) {
    const auto ids = layer_tensor("router_ids", layer);
    if (ids == file.tensors.end()) break;
    golden.trace.routes.push_back(Rows(ids->second));
    golden.set_margins.push_back(
        layer_tensor("router_margin", layer)->second.data);
    golden.order_margins.push_back(
        layer_tensor("router_order_margin", layer)->second.data);
  }
  for (auto& [name, tensor] : file.tensors) {
    const std::string_view kind = KindOf(name);
    if (kind == "logits" || kind == "residual" || kind == "recurrent" ||
        kind == "conv" || kind == "k" || kind == "v") {
      golden.trace.tensors[name] = std::move(tensor);
    }
  }
  golden.metadata = std::move(file.metadata);
  return golden;
}

std::string Staleness(const Golden& golden,
                      const std::filesystem::path& folder) {
  for (const auto& [key, digest] : golden.metadata) {
    if (!key.starts_with(kFileDigest)) continue;
    const std::filesystem::path file = folder / key.substr(kFileDigest.size());
    const std::string now =
        std::filesystem::exists(file) ? Sha256OfFile(file) : "no such file";
    if (now == digest) continue;
    return fmt::format(
        "the golden is stale: it was made from a {} of SHA-256 {}, and now it "
        "is {}; make the goldens anew (tools/oracle/README.md)",
        file.filename().string(), digest, now);
  }
  return {};
}

}  // namespace signet::testing
