#include "support/checkpoints.h"

#include "support/running_model.h"
#include "support/temporary_folder.h"
#include "support/tiny_checkpoint.h"

namespace signet::testing {

std::filesystem::path CheckpointFolder(const std::string& name) {
  if (name == kDemo) {
    const std::filesystem::path demo = SIGNET_SOURCE_DIR "/models/demo";
    return std::filesystem::exists(demo / "config.json")
               ? demo
               : std::filesystem::path();
  }
  const std::filesystem::path folder = TemporaryFolder() / name;
  if (!std::filesystem::exists(folder)) {
    ValueOrDie(WriteTinyCheckpoint(name, folder));
  }
  return folder;
}

std::vector<int32_t> SeededIds(int64_t vocabulary, int64_t count,
                               uint64_t seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    seed += 0x9E3779B97F4A7C15u;
    uint64_t x = seed;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    ids.push_back(static_cast<int32_t>(x % static_cast<uint64_t>(vocabulary)));
  }
  return ids;
}

}  // namespace signet::testing
