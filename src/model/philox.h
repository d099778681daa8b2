#pragma once
// Philox4x32-10, the counter-based generator of Salmon et al. (SC 2011): the
// n-th number is a function of key and n, so any split of the work gives the
// same numbers. Pure functions; any thread.

#include <array>
#include <cstddef>
#include <cstdint>

namespace signet::model {

using PhiloxBlock = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

/// kLanes blocks of consecutive counters at once: word w of lane i is
/// `words[w][i]`. A plain loop over lanes, which compilers make vectors of.
template <int kLanes>
struct PhiloxLanes {
  uint32_t words[4][kLanes];

  void Encrypt(PhiloxKey key) {
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < kLanes; ++i) {
        const uint64_t a = uint64_t{0xD2511F53} * words[0][i];
        const uint64_t b = uint64_t{0xCD9E8D57} * words[2][i];
        const uint32_t w1 = words[1][i];
        const uint32_t w3 = words[3][i];
        words[0][i] = static_cast<uint32_t>(b >> 32) ^ w1 ^ key[0];
        words[1][i] = static_cast<uint32_t>(b);
        words[2][i] = static_cast<uint32_t>(a >> 32) ^ w3 ^ key[1];
        words[3][i] = static_cast<uint32_t>(a);
      }
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
  }
};

/// One block.
inline PhiloxBlock Philox(const PhiloxBlock& counter, PhiloxKey key) {
  PhiloxLanes<1> lanes;
  for (size_t w = 0; w < 4; ++w) lanes.words[w][0] = counter[w];
  lanes.Encrypt(key);
  return {lanes.words[0][0], lanes.words[1][0], lanes.words[2][0],
          lanes.words[3][0]};
}

}  // namespace signet::model
