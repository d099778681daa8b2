#pragma once
// Unicode normalisation form C. Stateless; any thread.

#include <string>
#include <string_view>

namespace signet::text {

/// `text` in NFC, in time n log n at worst. `text` must be UTF-8. The result
/// is `text` itself where nothing changes, else a view of `*storage`.
std::string_view ToNfc(std::string_view text, std::string* storage);

}  // namespace signet::text
