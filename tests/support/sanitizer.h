#pragma once
// Whether a sanitizer stands in for the allocator: then freed memory is kept
// for a while, and how large the process is says nothing.

namespace signet::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kHasSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kHasSanitizer = true;
#else
inline constexpr bool kHasSanitizer = false;
#endif
#else
inline constexpr bool kHasSanitizer = false;
#endif

}  // namespace signet::testing
