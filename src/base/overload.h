#pragma once
// std::visit with one lambda a kind; a kind without one does not compile.

namespace signet {

template <typename... Ts>
struct Overload : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overload(Ts...) -> Overload<Ts...>;

}  // namespace signet
