#pragma once
// Models and meshes drawn at random, small enough to run in milliseconds.

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace signet::testing {

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  size_t Below(size_t n) { return static_cast<size_t>(random_() % n); }
  template <typename T>
  T OneOf(const std::vector<T>& values) {
    return values[Below(values.size())];
  }
  template <typename T>
  void Shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[Below(i)]);
    }
  }
  uint64_t Seed() { return random_(); }

 private:
  std::mt19937_64 random_;
};

struct DrawnModel {
  std::string config;  // JSON
  bool dense = false;
  int64_t experts = 0;
  int64_t vocab = 0;
  bool per_expert_files = false;
  uint64_t seed = 0;
};

DrawnModel DrawModel(Draw& draw);
/// Writes it into `folder`, which must not exist.
void WriteDrawn(const DrawnModel& model, const std::filesystem::path& folder);

/// Every mesh that may be drawn, legal or not.
std::vector<std::string> AllMeshes();

}  // namespace signet::testing
