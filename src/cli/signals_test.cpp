#include "cli/signals.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "cli/exit_code.h"

namespace signet::cli {
namespace {

constexpr int kThreads = 8;

// Maps a page of a file, cuts the file short and reads the page on all threads
// at once.
[[noreturn]] void ReadWhatIsGone() {
  InstallSignalHandlers();
  const long page = sysconf(_SC_PAGESIZE);
  const int file = memfd_create("weights", MFD_CLOEXEC);
  if (ftruncate(file, page) != 0) _exit(100);
  const void* mapped =
      mmap(nullptr, static_cast<size_t>(page), PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED || ftruncate(file, 0) != 0) _exit(101);
  std::atomic<int> waiting = kThreads;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      --waiting;
      while (waiting > 0) {
      }
      static_cast<void>(*static_cast<const volatile char*>(mapped));
    });
  }
  for (std::thread& thread : threads) thread.join();
  _exit(102);
}

TEST(Signals, A3_ThreadsThatMeetACutFileAtOnceEndInOneMessage) {
  for (int round = 0; round < 50; ++round) {
    std::array<int, 2> err;
    ASSERT_EQ(pipe2(err.data(), O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(err[1], STDERR_FILENO);
      ReadWhatIsGone();
    }
    close(err[1]);
    std::string said;
    std::array<char, 256> block;
    for (ssize_t size; (size = read(err[0], block.data(), block.size())) > 0;) {
      said.append(block.data(), static_cast<size_t>(size));
    }
    close(err[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), kExitFailed);
    EXPECT_EQ(said, "a mapped checkpoint file was truncated while in use\n");
  }
}

}  // namespace
}  // namespace signet::cli
