// Ranks that are processes, started by mpirun as a user would: the bits of
// one process, and one clear end for all when a rank is lost or disagrees.

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "backend/memory.h"
#include "e2e/process.h"

namespace signet::testing {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string FindMpirun() {
  std::istringstream path(std::getenv("PATH"));
  std::string folder;
  while (std::getline(path, folder, ':')) {
    const std::string program = folder + "/mpirun";
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return {};
}

std::string Demo() { return std::string(SIGNET_SOURCE_DIR) + "/models/demo"; }

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (mpirun_.empty()) GTEST_SKIP() << "no mpirun on the PATH";
    if (!kBuiltWithMpi) GTEST_SKIP() << "built without MPI";
  }

  static Invocation Start(int ranks, std::vector<std::string> arguments) {
    Invocation invocation;
    invocation.arguments = {"--allow-run-as-root", "--oversubscribe", "-n",
                            std::to_string(ranks)};
    invocation.arguments.insert(invocation.arguments.end(), arguments.begin(),
                                arguments.end());
    return invocation;
  }
  Outcome Launch(int ranks, std::vector<std::string> arguments) {
    return RunProcess(mpirun_, Start(ranks, std::move(arguments)));
  }
  // The first rank to exit must not end the others before they have spoken.
  Outcome Rank(int ranks, std::vector<std::string> arguments) {
    const std::vector<std::string> program = {
        "--mca", "orte_abort_on_non_zero_status", "0", MPI_RANK_BINARY};
    arguments.insert(arguments.begin(), program.begin(), program.end());
    return Launch(ranks, std::move(arguments));
  }
  static std::vector<std::string> Run(const std::string& mesh,
                                      std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        SIGNET_BINARY, "run",    Demo(), "--mesh",    mesh, "-p",
        "Alice was",   "--temp", "0",    "--threads", "1",  "--launcher"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // A run that would take much longer than the test.
  static Invocation Endless() {
    return Start(2, Run("ep=2", {"mpi", "--deadline", "3", "-n", "4000",
                                 "--ctx", "4096", "--ignore-eos"}));
  }

#ifdef SIGNET_HAS_MPI
  static constexpr bool kBuiltWithMpi = true;
#else
  static constexpr bool kBuiltWithMpi = false;
#endif
  const std::string mpirun_ = FindMpirun();
};

json Parse(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  json object = json::parse(outcome.out, nullptr, false);
  EXPECT_TRUE(object.is_object()) << outcome.out << outcome.err;
  return object.is_object() ? object : json::object();
}

TEST_F(Mpi, N2_EveryOperationGivesTheBitsOfTheFold) {
  for (const int ranks : {2, 3, 4}) {
    const Outcome outcome = Rank(ranks, {"transport"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    for (int r = 0; r < ranks; ++r) {
      EXPECT_THAT(outcome.err,
                  HasSubstr("rank " + std::to_string(r) + ": 0 errors"));
    }
  }
}

TEST_F(Mpi, N2_ProcessesDrawTheTokensOfThreads) {
  struct Case {
    int ranks;
    const char* mesh;
  };
  const std::vector<std::string> more = {"-n", "12", "--json"};
  for (const Case& c : {Case{2, "ep=2"}, Case{4, "ep=4"}, Case{2, "pp=2"},
                        Case{2, "tp=2"}, Case{4, "pp=2,ep=2"}}) {
    SCOPED_TRACE(c.mesh);
    std::vector<std::string> threads = Run(c.mesh, {"threads"});
    threads.insert(threads.end(), more.begin(), more.end());
    threads.erase(threads.begin());
    Invocation alone;
    alone.arguments = threads;
    const json wanted = Parse(RunProcess(SIGNET_BINARY, alone));
    std::vector<std::string> processes = Run(c.mesh, {"mpi"});
    processes.insert(processes.end(), more.begin(), more.end());
    // One object: rank 0 alone prints.
    const json got = Parse(Launch(c.ranks, processes));
    EXPECT_EQ(got["tokens"].size(), 12u);
    EXPECT_EQ(got["tokens"], wanted["tokens"]);
    EXPECT_EQ(got["contract"], wanted["contract"]);
    EXPECT_EQ(got["devices"], wanted["devices"]);
  }
}

TEST_F(Mpi, AnotherNumberOfProcessesThanRanksIsRefused) {
  const Outcome outcome = Launch(2, Run("ep=4", {"mpi", "-n", "4"}));
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("launcher_invalid: "));
  EXPECT_THAT(outcome.err, HasSubstr("got 2 processes; want mpirun -n 4"));
  EXPECT_EQ(outcome.out, "");
}

TEST_F(Mpi, ARefusalThatAllShareIsToldOnce) {
  const Outcome outcome = Launch(2, Run("ep=2", {"mpi", "--ctx", "-4"}));
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  const size_t first = outcome.err.find("plan_option_invalid");
  ASSERT_NE(first, std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("plan_option_invalid", first + 1),
            std::string::npos)
      << outcome.err;
}

// Every rank of the program says `text`, and exits as refused.
void ExpectEveryRankRefuses(const Outcome& outcome, int ranks,
                            const std::string& text) {
  for (int r = 0; r < ranks; ++r) {
    EXPECT_THAT(outcome.err,
                HasSubstr("rank " + std::to_string(r) + ": exit 3: " + text));
  }
}

TEST_F(Mpi, F3_AnotherBuildOnOneRankIsRefusedOnEveryRank) {
  ExpectEveryRankRefuses(Rank(2, {"build"}), 2,
                         "ranks_disagree: the rank's build id is not that of "
                         "rank 0 (rank 1; got other; want mine)");
}

TEST_F(Mpi, F3_AnotherContractOnOneRankIsRefusedOnEveryRank) {
  ExpectEveryRankRefuses(Rank(4, {"contract", Demo()}), 4,
                         "ranks_disagree: the rank's contract is not that of "
                         "rank 0 (rank 1;");
}

TEST_F(Mpi, F3_AnotherRequestOnOneRankIsRefusedOnEveryRank) {
  ExpectEveryRankRefuses(Rank(2, {"request", Demo()}), 2,
                         "ranks_disagree: the rank's request 0 is not that of "
                         "rank 0 (rank 1;");
}

TEST_F(Mpi, F3_AnErrorOfOneRankIsTheErrorOfAll) {
  ExpectEveryRankRefuses(Rank(2, {"source", Demo()}), 2, "source_not_found: ");
}

TEST_F(Mpi, M3_WhatIsOfAnotherMeshIsRefusedOnEveryRank) {
  for (const char* what : {"plan", "model", "session"}) {
    SCOPED_TRACE(what);
    ExpectEveryRankRefuses(Rank(2, {what, Demo()}), 2,
                           "ranks_disagree: the rank's mesh epoch is not that "
                           "of rank 0 (rank 1;");
  }
}

TEST_F(Mpi, P4_EveryProcessHoldsWhatThePlanSays) {
  struct Case {
    int ranks;
    const char* mesh;
    bool meets;  // in memory of its own, beyond the bytes of a stage
  };
  for (const Case& c : {Case{2, "ep=2", true}, Case{2, "tp=2", true},
                        Case{4, "pp=2,ep=2", true}, Case{2, "pp=2", false}}) {
    SCOPED_TRACE(c.mesh);
    const Outcome outcome = Rank(c.ranks, {"memory", Demo(), c.mesh});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::regex line(
        "rank ([0-9]+): ([0-9]+) of ([0-9]+) planned for (.*)");
    int lines = 0;
    int communicators = 0;
    std::istringstream text(outcome.err);
    for (std::string told; std::getline(text, told);) {
      std::smatch match;
      if (!std::regex_match(told, match, line)) continue;
      ++lines;
      EXPECT_EQ(match[2], match[3]) << told;
      communicators += match[4] == "communicator" && match[2] != "0" ? 1 : 0;
    }
    // Of all classes but what is mapped.
    const auto classes = static_cast<int>(backend::kNumMemoryClasses) - 1;
    EXPECT_EQ(lines, classes * c.ranks) << outcome.err;
    EXPECT_EQ(communicators, c.meets ? c.ranks : 0) << outcome.err;
  }
}

TEST_F(Mpi, X5_TheRankThatIsNamedIsTheOneThatStopped) {
  const Outcome outcome = Rank(4, {"silent"});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("missing rank 3"));
  for (const char* other : {"rank 0", "rank 1", "rank 2", "rank -1"}) {
    EXPECT_THAT(outcome.err, Not(HasSubstr(std::string("missing ") + other)));
  }
}

// The process of a rank below a running mpirun; -1: not found.
pid_t FindRank(pid_t mpirun, int rank) {
  const std::string wanted = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
  std::ifstream children("/proc/" + std::to_string(mpirun) + "/task/" +
                         std::to_string(mpirun) + "/children");
  pid_t child = -1;
  while (children >> child) {
    std::ifstream file("/proc/" + std::to_string(child) + "/environ");
    std::string variable;
    while (std::getline(file, variable, '\0')) {
      if (variable == wanted) return child;
    }
  }
  return -1;
}

// A process that ended and that nobody has waited for does not run.
bool IsRunning(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t state = text.rfind(')') + 2;
  return state < text.size() && text[state] != 'Z';
}

Outcome Disturb(const std::string& mpirun, Invocation invocation, int rank,
                int signal) {
  invocation.on_output = [=](pid_t child) {
    const pid_t process = FindRank(child, rank);
    ASSERT_GT(process, 0);
    ASSERT_EQ(kill(process, signal), 0);
  };
  return RunProcess(mpirun, invocation);
}

TEST_F(Mpi, X5_AStoppedRankEndsTheRunWithItsName) {
  for (const int rank : {0, 1}) {
    const Outcome outcome = Disturb(mpirun_, Endless(), rank, SIGSTOP);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("rank " + std::to_string(rank) + " did not"));
  }
}

TEST_F(Mpi, X5_AKilledRankEndsTheRun) {
  const Outcome outcome = Disturb(mpirun_, Endless(), 1, SIGKILL);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, AnyOf(HasSubstr("rank 1 did not"),
                                 HasSubstr("exited on signal 9")));
}

TEST_F(Mpi, CtrlCEndsAllProcesses) {
  Invocation invocation = Endless();
  pid_t rank = -1;
  invocation.on_output = [&](pid_t child) {
    rank = FindRank(child, 1);
    kill(child, SIGINT);
  };
  const Outcome outcome = RunProcess(mpirun_, invocation);
  EXPECT_NE(outcome.exit_code, 0);
  ASSERT_GT(rank, 0);
  EXPECT_FALSE(IsRunning(rank));
}

TEST(Launcher, WithoutMpirunOrMpiTheLauncherIsRefusedByName) {
  // RejectionCode::kLauncherInvalid, and RejectionCode::kRanksDisagree above.
  Invocation invocation;
  invocation.arguments = {"run", Demo(), "--mesh",     "ep=2",
                          "-p",  "a",    "--launcher", "mpi"};
  const Outcome outcome = RunProcess(SIGNET_BINARY, invocation);
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("launcher_invalid: "));
}

}  // namespace
}  // namespace signet::testing
