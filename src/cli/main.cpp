// The process. This file alone is compiled for any x86-64, so that a CPU
// without the instructions of the others is refused by name, not by a SIGILL.

#include <unistd.h>

#include <cstring>

#include "cli/application.h"
#include "cli/exit_code.h"

namespace {

class Text {
 public:
  void Add(const char* more) {
    const size_t size = std::strlen(more);
    if (size_ + size >= sizeof bytes_) return;
    std::memcpy(bytes_ + size_, more, size);
    size_ += size;
  }
  void Write(int file) const {
    [[maybe_unused]] const ssize_t written = write(file, bytes_, size_);
  }
  bool empty() const { return size_ == 0; }
  const char* c_str() {
    bytes_[size_] = '\0';
    return bytes_;
  }

 private:
  char bytes_[512];
  size_t size_ = 0;
};

void AddMissing(Text& missing, int is_there, const char* name) {
  if (is_there != 0) return;
  if (!missing.empty()) missing.Add(" ");
  missing.Add(name);
}

bool WantsJson(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) return true;
  }
  return false;
}

// Runs before every static constructor of the program: those are compiled for
// the newer CPU too. glibc passes the arguments of main to constructors.
[[gnu::constructor(101)]] void RefuseOldCpu(int argc, char** argv) {
  __builtin_cpu_init();
  Text missing;
  AddMissing(missing, __builtin_cpu_supports("avx2"), "AVX2");
  AddMissing(missing, __builtin_cpu_supports("fma"), "FMA");
  AddMissing(missing, __builtin_cpu_supports("f16c"), "F16C");
  AddMissing(missing, __builtin_cpu_supports("bmi"), "BMI1");
  AddMissing(missing, __builtin_cpu_supports("bmi2"), "BMI2");
  AddMissing(missing, __builtin_cpu_supports("lzcnt"), "LZCNT");
  AddMissing(missing, __builtin_cpu_supports("movbe"), "MOVBE");
  if (missing.empty()) return;
  Text text;
  if (WantsJson(argc, argv)) {
    text.Add(
        "{\"rejections\":[{\"code\":\"device_unavailable\","
        "\"where\":\"cpu\",\"got\":\"no ");
    text.Add(missing.c_str());
    text.Add(
        "\",\"want\":\"x86-64-v3\",\"message\":"
        "\"the CPU lacks instructions this program uses\"}]}\n");
    text.Write(STDOUT_FILENO);
  } else {
    text.Add(
        "device_unavailable: the CPU lacks instructions this program "
        "uses (cpu; got no ");
    text.Add(missing.c_str());
    text.Add(", want x86-64-v3)\n");
    text.Write(STDERR_FILENO);
  }
  _exit(signet::cli::kExitRefused);
}

}  // namespace

int main(int argc, char** argv) {
  return signet::cli::RunApplication(argc, argv);
}
