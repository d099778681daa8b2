#include "engine/world_facts.h"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "engine/devices.h"

namespace signet {
namespace {

template <typename T>
T Number(const std::string& text) {
  T value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Result<topology::DeviceIdentity> OwnDevice(const collective::World& world,
                                           std::string_view mesh,
                                           std::string_view devices) {
  SIGNET_ASSIGN_OR_RETURN(const topology::MeshSpec spec,
                          topology::MeshSpec::Parse(mesh));
  if (spec.num_ranks() != world.size()) {
    return Reject(RejectionCode::kLauncherInvalid, "--mesh",
                  "the launcher started another number of processes than the "
                  "mesh has ranks",
                  fmt::format("{} processes", world.size()),
                  fmt::format("mpirun -n {}", spec.num_ranks()));
  }
  return ChooseDevice(devices, spec.num_ranks(), world.rank());
}

Facts DeviceFacts(const topology::DeviceIdentity& device) {
  return {{"backend", device.backend},
          {"identity", device.uuid},
          {"pci", device.pci},
          {"ordinal", std::to_string(device.ordinal)},
          {"architecture", device.architecture},
          {"memory", std::to_string(device.memory_bytes)}};
}

// As DeviceFacts writes them; all processes are one build.
topology::DeviceIdentity ReadDevice(const Facts& facts) {
  SIGNET_CHECK(facts.size() == 6);
  return {.backend = facts[0].second,
          .uuid = facts[1].second,
          .pci = facts[2].second,
          .ordinal = Number<int>(facts[3].second),
          .architecture = facts[4].second,
          .memory_bytes = Number<uint64_t>(facts[5].second)};
}

}  // namespace

Result<std::vector<topology::DeviceIdentity>> MeetDevices(
    World::Impl& world, std::string_view mesh, std::string_view devices) {
  SIGNET_ASSIGN_OR_RETURN(
      const std::vector<Facts> all,
      world.Meet("devices",
                 OwnDevice(*world.world, mesh, devices).map(DeviceFacts)));
  std::vector<topology::DeviceIdentity> identities;
  for (const Facts& facts : all) identities.push_back(ReadDevice(facts));
  return identities;
}

Facts EpochFacts(const Plan::Impl& plan) {
  return {{"mesh epoch", plan.epoch}};
}

Facts PlanFacts(const Plan::Impl& plan) {
  const topology::Mesh& mesh = plan.plan->mesh();
  Facts facts = EpochFacts(plan);
  facts.emplace_back("mesh", mesh.spec().ToString());
  facts.emplace_back("contract", plan.plan->contract_id().Hex());
  for (int r = 0; r < mesh.num_ranks(); ++r) {
    facts.emplace_back(fmt::format("device of rank {}", r),
                       mesh.device(Rank(r)).uuid);
    Digester programs;
    for (const step::SealedProgram& program :
         plan.programs[static_cast<size_t>(r)]) {
      programs.Update(program.id().Hex());
    }
    facts.emplace_back(fmt::format("programs of rank {}", r),
                       programs.Finish().Hex());
  }
  return facts;
}

Facts RequestFacts(const Plan::Impl& plan, std::span<const Request> requests) {
  Facts facts = EpochFacts(plan);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    Digester digest;
    const auto add = [&](const auto& value) {
      digest.Update(fmt::format("{}\n", value));
    };
    if (const auto* text = std::get_if<std::string>(&request.prompt)) {
      add(*text);
    } else if (const auto* chat = std::get_if<Chat>(&request.prompt)) {
      for (const ChatMessage& message : chat->messages) {
        add(static_cast<int>(message.role));
        add(message.content);
        add(message.reasoning ? "reasoning" : "");
        add(message.reasoning.value_or(""));
      }
      add(chat->thinking);
    } else {
      for (const int32_t id : std::get<std::vector<int32_t>>(request.prompt)) {
        add(id);
      }
    }
    add(request.max_tokens);
    add(request.sampling.temperature);
    add(request.sampling.top_k);
    add(request.sampling.top_p);
    add(request.sampling.seed);
    for (const std::string& stop : request.stops) add(stop);
    add(request.ignore_eos);
    add(request.sequence);
    facts.emplace_back(fmt::format("request {}", i), digest.Finish().Hex());
  }
  return facts;
}

}  // namespace signet
