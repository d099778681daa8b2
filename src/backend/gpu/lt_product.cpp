#include "backend/gpu/lt_product.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "backend/gpu/ceiling_parts.h"
#include "backend/gpu/gpu_timing.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define SIGNET_HAS_LT 1
#endif

namespace signet::backend::gpu {

#ifdef SIGNET_HAS_LT
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kCandidates = 8;

void* OpenLibrary() {
  for (const char* name :
       {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

// The entry points used.
struct Library {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;

  // Never closed: the driver may keep what it loaded.
  bool Load() {
    void* const library = OpenLibrary();
    if (library == nullptr) return false;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          dlsym(library, name));
      return function != nullptr;
    };
    return find(create, "cublasLtCreate") && find(destroy, "cublasLtDestroy") &&
           find(desc_create, "cublasLtMatmulDescCreate") &&
           find(desc_destroy, "cublasLtMatmulDescDestroy") &&
           find(desc_set, "cublasLtMatmulDescSetAttribute") &&
           find(layout_create, "cublasLtMatrixLayoutCreate") &&
           find(layout_destroy, "cublasLtMatrixLayoutDestroy") &&
           find(preference_create, "cublasLtMatmulPreferenceCreate") &&
           find(preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
           find(preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
           find(heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
           find(matmul, "cublasLtMatmul");
  }
};

// d = a^T b, both operands contiguous along the sum: the form in which weights
// and activations meet.
class Product {
 public:
  Product(Stream stream, int n) : stream_(stream), n_(n) {}
  ~Product() {
    if (preference_ != nullptr) library_.preference_destroy(preference_);
    if (layout_ != nullptr) library_.layout_destroy(layout_);
    if (desc_ != nullptr) library_.desc_destroy(desc_);
    if (handle_ != nullptr) library_.destroy(handle_);
    for (void* memory : memory_) cudaFree(memory);
    cudaFree(workspace_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  std::optional<double> Run() {
    if (!library_.Load() || !Describe() || !Fill()) return std::nullopt;
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found = {};
    int count = 0;
    if (library_.heuristic(handle_, desc_, layout_, layout_, layout_, layout_,
                           preference_, kCandidates, found.data(),
                           &count) != CUBLAS_STATUS_SUCCESS) {
      return std::nullopt;
    }
    std::optional<double> best;
    for (int i = 0; i < count; ++i) {
      Status status = kOk;
      const double seconds = MedianSeconds(
          stream_, status, [&] { return Multiply(found[i].algo); });
      if (status == kOk) best = std::min(best.value_or(seconds), seconds);
    }
    return best;
  }

 private:
  bool Describe() {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const auto n = static_cast<uint64_t>(n_);
    const auto is_done = [](cublasStatus_t status) {
      return status == CUBLAS_STATUS_SUCCESS;
    };
    return is_done(library_.create(&handle_)) &&
           is_done(
               library_.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
           is_done(library_.desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSA,
                                     &transposed, sizeof transposed)) &&
           is_done(library_.layout_create(&layout_, CUDA_R_16BF, n, n, n_)) &&
           is_done(library_.preference_create(&preference_)) &&
           is_done(library_.preference_set(
               preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
               &kWorkspaceBytes, sizeof kWorkspaceBytes));
  }

  bool Fill() {
    const auto count = static_cast<uint64_t>(n_) * static_cast<uint64_t>(n_);
    Status status = cudaMalloc(&workspace_, kWorkspaceBytes);
    for (uint32_t m = 0; m < memory_.size() && status == kOk; ++m) {
      status = cudaMalloc(&memory_[m], count * 2);
      if (status == kOk) {
        status = LaunchRandomBf16(stream_, memory_[m], count, m * 0x51ED270Bu);
      }
    }
    // Not left for the next call to be blamed for.
    static_cast<void>(cudaGetLastError());
    return status == kOk;
  }

  Status Multiply(const cublasLtMatmulAlgo_t& algo) {
    const float one = 1;
    const float zero = 0;
    const cublasStatus_t status =
        library_.matmul(handle_, desc_, &one, memory_[0], layout_, memory_[1],
                        layout_, &zero, memory_[2], layout_, memory_[2],
                        layout_, &algo, workspace_, kWorkspaceBytes, stream_);
    return status == CUBLAS_STATUS_SUCCESS ? kOk : cudaErrorUnknown;
  }

  Stream stream_;
  int n_;
  Library library_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t layout_ = nullptr;  // of all three
  cublasLtMatmulPreference_t preference_ = nullptr;
  std::array<void*, 3> memory_ = {};  // a, b, d
  void* workspace_ = nullptr;
};

}  // namespace

std::optional<double> SecondsOfLtProduct(Stream stream, int n) {
  return Product(stream, n).Run();
}

#else

std::optional<double> SecondsOfLtProduct(Stream, int) { return std::nullopt; }

#endif

}  // namespace signet::backend::gpu
