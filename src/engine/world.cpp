#include "signet/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/check.h"
#include "collective/mpi/mpi_world.h"
#include "engine/boundary.h"
#include "engine/letter.h"
#include "engine/world_impl.h"

namespace signet {
namespace {

std::string RankName(size_t rank) { return fmt::format("rank {}", rank); }

// The error of one rank, as all report it.
Error OfRank(Error error, size_t rank) {
  const auto name = [&](std::string& where) {
    where = where.empty() ? RankName(rank)
                          : fmt::format("{}, {}", RankName(rank), where);
  };
  if (auto* failure = std::get_if<Failure>(&error)) {
    name(failure->where);
    return error;
  }
  RejectionList list;
  for (Rejection rejection : std::get<Rejections>(error).list()) {
    name(rejection.where);
    list.Add(std::move(rejection));
  }
  return list.Take().value();
}

bool operator==(const Failure& a, const Failure& b) {
  return a.kind == b.kind && a.where == b.where && a.message == b.message;
}

bool Same(const Error& a, const Error& b) {
  if (a.index() != b.index()) return false;
  if (const auto* failure = std::get_if<Failure>(&a)) {
    return *failure == std::get<Failure>(b);
  }
  return std::get<Rejections>(a).list() == std::get<Rejections>(b).list();
}

// What all end in: the one error they share, or that of the first rank that
// has one.
std::optional<Error> CommonError(const std::vector<Letter>& letters) {
  const auto first =
      std::find_if(letters.begin(), letters.end(),
                   [](const Letter& letter) { return letter.error; });
  if (first == letters.end()) return std::nullopt;
  const bool shared =
      std::all_of(letters.begin(), letters.end(), [&](const Letter& letter) {
        return letter.error && Same(*letter.error, *first->error);
      });
  if (shared) return first->error;
  return OfRank(*first->error, static_cast<size_t>(first - letters.begin()));
}

std::string DrawRunId() {
  std::random_device device;
  const auto word = [&] {
    return (static_cast<uint64_t>(device()) << 32) | device();
  };
  return fmt::format("{:016x}{:016x}", word(), word());
}

}  // namespace

Result<std::vector<Facts>> World::Impl::Meet(std::string_view phase,
                                             const Result<Facts>& own) {
  Letter letter{.phase = std::string(phase)};
  if (own) {
    letter.facts = *own;
  } else {
    letter.error = own.error();
  }
  const Result<std::vector<std::string>> all =
      lost ? Fail(FailureKind::kState, "mesh", "a rank was lost")
           : world->Exchange(Write(letter));
  if (!all) {
    lost = true;
    return tl::unexpected<Error>(all.error());
  }
  std::vector<Letter> letters;
  for (size_t r = 0; r < all->size(); ++r) {
    std::optional<Letter> read = ReadLetter((*all)[r]);
    if (!read) {
      return Fail(FailureKind::kDevice, RankName(r),
                  "what the rank sent is not understood");
    }
    letters.push_back(*std::move(read));
  }
  if (std::optional<Error> error = CommonError(letters)) {
    return tl::unexpected<Error>(*std::move(error));
  }
  std::vector<Facts> facts;
  for (size_t r = 0; r < letters.size(); ++r) {
    if (letters[r].phase != letters[0].phase) {
      return Fail(FailureKind::kState, RankName(r),
                  fmt::format("the rank is at \"{}\" while rank 0 is at \"{}\"",
                              letters[r].phase, letters[0].phase));
    }
    facts.push_back(std::move(letters[r].facts));
  }
  return facts;
}

Result<void> World::Impl::Agree(std::string_view phase,
                                const Result<Facts>& own) {
  SIGNET_ASSIGN_OR_RETURN(const std::vector<Facts> all, Meet(phase, own));
  RejectionList rejections;
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r].size() != all[0].size()) {
      rejections.Add(RejectionCode::kRanksDisagree, RankName(r),
                     "the rank compares other things than rank 0",
                     std::to_string(all[r].size()),
                     std::to_string(all[0].size()));
      continue;
    }
    for (size_t i = 0; i < all[r].size(); ++i) {
      if (all[r][i] == all[0][i]) continue;
      rejections.Add(
          RejectionCode::kRanksDisagree, RankName(r),
          fmt::format("the rank's {} is not that of rank 0", all[r][i].first),
          all[r][i].second, all[0][i].second);
    }
  }
  if (!rejections.empty()) return rejections.Take();
  return {};
}

Result<void> World::Impl::Together(std::string_view phase,
                                   const Result<void>& own) {
  return Agree(
      phase, own ? Result<Facts>(Facts()) : tl::unexpected<Error>(own.error()));
}

std::string World::Impl::NextEpoch() {
  return fmt::format("{}/{}", run_id, num_meshes++);
}

World::World(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<World> World::JoinMpi(const WorldOptions& options) {
  return AtBoundary("mesh", [&] { return Join(options); });
}

Result<World> World::Join(const WorldOptions& options) {
  auto impl = std::make_shared<Impl>();
  SIGNET_ASSIGN_OR_RETURN(impl->world, collective::StartMpi(options.deadline));
  // The build first: letters of another may read otherwise.
  const Result<void> agreed =
      impl->Agree("build", Facts{{"build id", options.build_id}});
  if (!agreed) {
    // The caller gets no world to leave.
    SIGNET_RETURN_IF_ERROR(impl->world->Leave());
    return tl::unexpected<Error>(agreed.error());
  }
  // Rank 0 draws the id of the run; the others take it from its letter.
  SIGNET_ASSIGN_OR_RETURN(const std::vector<Facts> drawn,
                          impl->Meet("run", Facts{{"run id", DrawRunId()}}));
  SIGNET_CHECK(drawn[0].size() == 1);
  impl->run_id = drawn[0][0].second;
  return World(std::move(impl));
}

int World::rank() const { return impl_->world->rank(); }
int World::size() const { return impl_->world->size(); }

Error World::Share(const Error& error) {
  const Result<void> met = AtBoundary("mesh", [&]() -> Result<void> {
    const Result<std::vector<Facts>> letters =
        impl_->Meet("error", tl::unexpected<Error>(error));
    return tl::unexpected<Error>(letters ? error : letters.error());
  });
  return met.error();
}

bool World::lost() const { return impl_->lost; }

Result<void> World::Leave() {
  if (impl_->lost) return Fail(FailureKind::kState, "mesh", "a rank was lost");
  return AtBoundary("mesh", [&] { return impl_->world->Leave(); });
}

void World::Abort(int exit_code) {
  impl_->world->Abort(exit_code);
  SIGNET_CHECK(false);
}

}  // namespace signet
