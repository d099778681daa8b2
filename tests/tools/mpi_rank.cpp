// One rank of the MPI tests, started by mpirun; argv[1] says which test. What
// it finds goes to standard error, one line a rank; the exit status as that of
// the product.

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/kernel_bench.h"
#include "collective/fold.h"
#include "collective/mpi/mpi_world.h"
#include "engine/device_factory.h"
#include "signet/engine.h"
#include "signet/plan.h"
#include "signet/session.h"
#include "signet/world.h"
#include "support/running_model.h"
#include "topology/block.h"

namespace signet {
namespace {

using backend::testing::KernelBench;
using collective::Communicator;
using std::chrono::milliseconds;
using topology::Axis;

// What member m brings: sums of these depend on the order.
float Value(int member, int64_t i) {
  const float telling[] = {1e8f, 1.0f, -1e8f, 1.0f, 3e-5f, 1e8f, -1.0f, 7.0f};
  if (i % 2 == 0) return telling[(member + i / 2) % 8];
  const auto mixed = static_cast<uint32_t>((i * 64 + member) * 2654435761u);
  return static_cast<float>(mixed) / 1e4f - 2e5f;
}

std::byte* Raw(float* data) { return reinterpret_cast<std::byte*>(data); }

bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

int Tell(int rank, const std::string& text) {
  fmt::print(stderr, "rank {}: {}\n", rank, text);
  return 1;
}

int Reduce(Communicator& end, int64_t elements) {
  std::vector<std::vector<float>> all;
  std::vector<const float*> sources;
  for (int m = 0; m < end.members(); ++m) {
    std::vector<float>& x = all.emplace_back();
    for (int64_t i = 0; i < elements; ++i) x.push_back(Value(m, i));
  }
  for (const std::vector<float>& x : all) sources.push_back(x.data());
  std::vector<float> wanted(static_cast<size_t>(elements));
  collective::Fold(sources, 0, elements, wanted.data());
  std::vector<float> out(wanted.size(), -1);
  end.AllReduce(KernelBench::Launch(),
                {.x = all[static_cast<size_t>(end.member())].data(),
                 .out = out.data(),
                 .elements = elements});
  return end.poisoned() || !Same(out, wanted) ? 1 : 0;
}

int Gather(Communicator& end, int64_t rows, int64_t columns) {
  std::vector<float> wanted;
  for (int64_t i = 0; i < rows * columns; ++i) wanted.push_back(Value(0, i));
  const topology::Block block =
      topology::BlockOf(columns, end.members(), end.member());
  std::vector<float> x;
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = wanted.data() + row * columns + block.first;
    x.insert(x.end(), from, from + block.size);
  }
  std::vector<float> out(wanted.size(), -1);
  end.Gather(KernelBench::Launch(), {.x = Raw(x.data()),
                                     .out = Raw(out.data()),
                                     .rows = rows,
                                     .columns = columns,
                                     .element_bytes = 4});
  return end.poisoned() || !Same(out, wanted) ? 1 : 0;
}

int Broadcast(Communicator& end, int root, int64_t elements) {
  std::vector<float> wanted;
  for (int64_t i = 0; i < elements; ++i) wanted.push_back(Value(root, i));
  std::vector<float> x = wanted;
  std::vector<float> out(wanted.size(), -1);
  end.Broadcast(KernelBench::Launch(),
                {.x = end.member() == root ? Raw(x.data()) : nullptr,
                 .out = Raw(out.data()),
                 .bytes = static_cast<uint64_t>(4 * elements),
                 .root = root});
  return end.poisoned() || !Same(out, wanted) ? 1 : 0;
}

std::unique_ptr<collective::World> Start(milliseconds deadline) {
  Result<std::unique_ptr<collective::World>> world =
      collective::StartMpi(deadline);
  if (!world) std::exit(Tell(-1, Describe(world.error())));
  return *std::move(world);
}

std::unique_ptr<collective::RankGroups> Groups(
    collective::World& world, const topology::Mesh& mesh,
    const collective::AxisSizes& sizes, backend::Device& device) {
  auto groups = world.MakeGroups(mesh, sizes, device);
  if (!groups) std::exit(Tell(world.rank(), Describe(groups.error())));
  return *std::move(groups);
}

// Every operation, short and long, on every axis of a mesh of all processes.
int Transport() {
  const auto world = Start(milliseconds(30000));
  const int size = world->size();
  const std::string spec = size == 4 ? "pp=2,ep=2" : fmt::format("ep={}", size);
  int errors = 0;
  const auto device = backend::cpu::MakeCpuDevice(0, 1);
  for (const std::string& text : {spec, fmt::format("pp={}", size)}) {
    const topology::Mesh mesh = testing::CpuMesh(text);
    collective::AxisSizes sizes;
    sizes.fill({.reduce_elements = 40000, .gather_bytes = 4 * 7 * 1001});
    const auto groups = Groups(*world, mesh, sizes, *device);
    const collective::RankCommunicators& own = groups->of(Rank(world->rank()));
    for (const Axis axis : topology::kAllAxes) {
      Communicator* const end = own.Along(axis);
      if (end == nullptr) continue;
      for (int round = 0; round < 4; ++round) {
        for (const int64_t elements : {1, 1001, 40000}) {
          errors += Reduce(*end, elements);
        }
        for (const int64_t columns : {1, 9, 1001}) {
          errors += Gather(*end, 1, columns) + Gather(*end, 7, columns);
        }
        for (int root = 0; root < end->members(); ++root) {
          errors += Broadcast(*end, root, 1) + Broadcast(*end, root, 300000);
        }
      }
    }
    if (own.previous_stage != nullptr) {
      errors += Broadcast(*own.previous_stage, 0, 5000);
    }
    if (own.next_stage != nullptr) {
      errors += Broadcast(*own.next_stage, 0, 5000);
    }
  }
  const Result<std::vector<std::string>> all =
      world->Exchange(std::string(static_cast<size_t>(world->rank()) * 1000,
                                  static_cast<char>('a' + world->rank())));
  for (int r = 0; all && r < size; ++r) {
    errors +=
        (*all)[static_cast<size_t>(r)] !=
        std::string(static_cast<size_t>(r) * 1000, static_cast<char>('a' + r));
  }
  Tell(world->rank(), fmt::format("{} errors", errors));
  if (!world->Leave()) return 1;
  return errors == 0 ? 0 : 1;
}

// A chain: ranks wait for ranks that wait for the last, which is stopped.
int Silent() {
  const auto world = Start(milliseconds(2000));
  const int last = world->size() - 1;
  const topology::Mesh mesh =
      testing::CpuMesh(fmt::format("pp={}", world->size()));
  const auto device = backend::cpu::MakeCpuDevice(0, 1);
  const auto groups = Groups(*world, mesh, {}, *device);
  const collective::RankCommunicators& own = groups->of(Rank(world->rank()));
  if (world->rank() == last) {
    raise(SIGSTOP);
    // Woken only to be ended.
    while (true) pause();
  }
  // Backwards, from the last stage to the first.
  Communicator* const from = own.next_stage;
  float x = 0;
  from->Broadcast(KernelBench::Launch(),
                  {.out = Raw(&x), .bytes = 4, .root = 1});
  if (own.previous_stage != nullptr && !from->poisoned()) {
    own.previous_stage->Broadcast(KernelBench::Launch(),
                                  {.x = Raw(&x), .bytes = 4, .root = 1});
  }
  const std::optional<Rank> missing = groups->missing_rank();
  Tell(world->rank(),
       fmt::format("missing rank {}", missing ? missing->value() : -1));
  world->Abort(1);
  return 1;
}

// With the status this process will exit with: mpirun gives that of no rank
// when it lets all of them speak.
int Refused(int rank, const Error& error) {
  Tell(rank, fmt::format("exit {}: {}", ExitCode(error), Describe(error)));
  return ExitCode(error);
}

int End(World& world, const Error& error) {
  const int code = Refused(world.rank(), error);
  return world.Leave() ? code : 1;
}

// Rank 1 is another build.
int Build(int rank) {
  Result<World> world =
      World::JoinMpi({.build_id = rank == 1 ? "other" : "mine",
                      .deadline = milliseconds(30000)});
  if (world) return Tell(rank, "joined");
  return Refused(rank, world.error());
}

// Rank 1 is asked for something else: another contract, source or prompt; or
// comes with what it has of the second of two equal meshes: the plan to load,
// the model of a session, the session.
int Differ(const std::string& what, const std::string& model) {
  Result<World> world =
      World::JoinMpi({.build_id = "mine", .deadline = milliseconds(30000)});
  if (!world) return Tell(-1, Describe(world.error()));
  const bool differs = world->rank() == 1;
  const Result<Source> source = Source::Open(
      differs && what == "source" ? model + "/no_such_model" : model, {});
  if (!source) return End(*world, world->Share(source.error()));
  PlanOptions options;
  options.mesh = fmt::format("ep={}", world->size());
  options.context = differs && what == "contract" ? 64 : 128;
  options.world = *world;
  // What a stage takes the i-th of, when it takes both in turn.
  const auto nth = [&](int i, const char* stage) {
    return static_cast<size_t>(differs && what == stage ? 1 - i : i);
  };
  std::vector<Plan> plans;
  std::vector<Model> models;
  std::vector<Session> sessions;
  for (int i = 0; i < 2; ++i) {
    const Result<Plan> plan = Plan::Make(*source, options);
    if (!plan) return End(*world, plan.error());
    plans.push_back(*plan);
  }
  for (int i = 0; i < 2; ++i) {
    const Result<Model> loaded =
        Engine::Make({.threads = 1})->Load(plans[nth(i, "plan")], {});
    if (!loaded) return End(*world, loaded.error());
    models.push_back(*loaded);
  }
  for (int i = 0; i < 2; ++i) {
    Result<Session> session = Session::Make(models[nth(i, "model")], 1);
    if (!session) return End(*world, session.error());
    sessions.push_back(*std::move(session));
  }
  class Ignore : public Sink {
    void OnToken(const TokenEvent&) override {}
    void OnEnd(const EndEvent&) override {}
  } sink;
  const Request request = {
      .prompt = std::vector<int32_t>{1, differs && what == "request" ? 3 : 2},
      .max_tokens = 2};
  const Result<void> generated =
      sessions[nth(0, "session")].Generate(std::span(&request, 1), sink);
  if (!generated) return End(*world, generated.error());
  return Tell(world->rank(), "generated");
}

// What this process holds of each class while a session is alive, against what
// the plan says of its rank.
int Memory(const std::string& model, const std::string& mesh) {
  Result<World> world =
      World::JoinMpi({.build_id = "mine", .deadline = milliseconds(30000)});
  if (!world) return Tell(-1, Describe(world.error()));
  const int rank = world->rank();
  std::vector<backend::Device*> devices;
  Engine engine =
      MakeEngine({.threads = 1}, [&](const topology::DeviceIdentity& identity,
                                     int threads) {
        auto device = backend::cpu::MakeCpuDevice(identity.ordinal, threads);
        devices.push_back(device.get());
        return device;
      }).value();
  PlanOptions options;
  options.mesh = mesh;
  options.context = 128;
  options.world = *world;
  const Result<Plan> plan =
      Plan::Make(Source::Open(model, {}).value(), options);
  if (!plan) return End(*world, plan.error());
  const Result<Model> loaded = engine.Load(*plan, {});
  if (!loaded) return End(*world, loaded.error());
  {
    const Result<Session> session = Session::Make(*loaded, 1);
    if (!session) return End(*world, session.error());
    const auto planned = nlohmann::json::parse(
        plan->Json().value())["ranks"][static_cast<size_t>(rank)]["steady"];
    for (const MemoryClass memory_class : kAllMemoryClasses) {
      if (memory_class == MemoryClass::kMapped) continue;
      Bytes held;
      for (const backend::Device* device : devices) {
        held += device->counts().LiveBytes(memory_class);
      }
      Tell(rank, fmt::format("{} of {} planned for {}", held.value(),
                             planned.value(std::string(Name(memory_class)),
                                           uint64_t{0}),
                             Name(memory_class)));
    }
  }
  return world->Leave() ? 0 : 1;
}

int Main(const std::vector<std::string>& arguments) {
  const std::string& test = arguments.at(1);
  if (test == "transport") return Transport();
  if (test == "silent") return Silent();
  if (test == "build") {
    const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
    return Build(rank == nullptr ? 0 : std::atoi(rank));
  }
  if (test == "memory") return Memory(arguments.at(2), arguments.at(3));
  return Differ(test, arguments.at(2));
}

}  // namespace
}  // namespace signet

int main(int argc, char** argv) { return signet::Main({argv, argv + argc}); }
