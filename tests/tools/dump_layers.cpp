// dump_layers MODEL DIR DEVICES CHUNK PROMPT POSITIONS [LAYER...]: runs one
// side and writes its tokens and logits, for tools/oracle/model_parity.py, and
// what enters and leaves the layers named, for tools/oracle/layer_parity.py:
// DIR/data.bin, f32 or i32 rows one after another, and DIR/index.json, which
// says what each is. PROMPT is a number of drawn ids, fed in chunks of CHUNK;
// the rest up to POSITIONS is decoded. KV is f32. Where layers are named, steps
// run one by one with taps; else as the engine runs them.

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

#include "engine/devices.h"
#include "evidence/lockstep.h"
#include "evidence/mesh_side.h"
#include "support/running_model.h"

namespace signet::testing {
namespace {

using evidence::Piece;
using evidence::What;

class Dump {
 public:
  Dump(const std::filesystem::path& folder, std::set<int32_t> layers)
      : folder_(folder), layers_(std::move(layers)) {
    std::filesystem::create_directories(folder);
    data_.open(folder / "data.bin", std::ios::binary);
  }

  void Add(const evidence::CallRecord& call) {
    for (const Piece& piece : call.pieces) {
      const bool wanted =
          piece.what == What::kToken || piece.what == What::kLogits ||
          ((piece.what == What::kResidual || piece.what == What::kRouterIds ||
            piece.what == What::kRouterScores) &&
           (layers_.contains(piece.layer) ||
            // The input of a layer leaves the one before.
            layers_.contains(piece.layer + 1)));
      if (wanted) Write(piece);
    }
  }

  ~Dump() { std::ofstream(folder_ / "index.json") << index_.dump(1) << '\n'; }

 private:
  void Write(const Piece& piece) {
    const bool is_ids = piece.values.empty();
    const void* from = is_ids ? static_cast<const void*>(piece.ids.data())
                              : piece.values.data();
    const size_t bytes = 4 * (piece.ids.size() + piece.values.size());
    index_.push_back({{"what", Name(piece.what)},
                      {"layer", piece.layer},
                      {"position", piece.position},
                      {"rows", piece.rows},
                      {"width", piece.width()},
                      {"dtype", is_ids ? "i32" : "f32"},
                      {"offset", offset_}});
    data_.write(static_cast<const char*>(from),
                static_cast<std::streamsize>(bytes));
    offset_ += bytes;
  }

  std::filesystem::path folder_;
  std::set<int32_t> layers_;
  std::ofstream data_;
  nlohmann::json index_ = nlohmann::json::array();
  size_t offset_ = 0;
};

int Run(int argc, char** argv) {
  const auto manifest = OpenManifest(argv[1]);
  const int64_t chunk = std::atoll(argv[4]);
  const int64_t prompt = std::atoll(argv[5]);
  const int64_t positions = std::atoll(argv[6]);
  std::set<int32_t> layers;
  for (int i = 7; i < argc; ++i) layers.insert(std::atoi(argv[i]));
  const evidence::SideSpec spec{ValueOrDie(topology::MeshSpec::Parse("single")),
                                ValueOrDie(ChooseDevices(argv[3], 1))};
  const plan::PlanOptions options = {
      .context = 4096, .prefill_chunks = {chunk}, .all_logits = true};
  const auto side = ValueOrDie(MakeSidePlan(manifest, spec, options, {}));
  const auto taps = layers.empty() ? evidence::Taps::kOff : evidence::Taps::kOn;
  const auto running =
      ValueOrDie(evidence::MeshSide::Start(&side, taps, 2, {}));
  evidence::Feed feed{.prompt = {}, .other_prompt = {}, .positions = positions};
  std::mt19937 random(7);
  for (int64_t i = 0; i < prompt; ++i) {
    feed.prompt.push_back(static_cast<int32_t>(
        random() % static_cast<uint64_t>(manifest->config().vocab)));
  }
  feed.other_prompt = feed.prompt;
  Dump dump(argv[2], layers);
  int64_t faults = 0;
  int64_t calls = 0;
  ValueOrDie(RunLockstep(
      *running, nullptr, feed,
      [&](const evidence::CallRecord& call, const evidence::CallRecord*) {
        faults += static_cast<int64_t>(call.faults.size());
        ++calls;
        dump.Add(call);
      }));
  std::ofstream prompt_file(std::filesystem::path(argv[2]) / "prompt.json");
  prompt_file << nlohmann::json(feed.prompt).dump() << '\n';
  fmt::print("{} calls, {} faults\n", calls, faults);
  return faults == 0 ? 0 : 1;
}

}  // namespace
}  // namespace signet::testing

int main(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr,
                 "usage: dump_layers MODEL DIR DEVICES CHUNK PROMPT POSITIONS "
                 "[LAYER...]\n");
    return 2;
  }
  return signet::testing::Run(argc, argv);
}
