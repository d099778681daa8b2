# Compiler baseline shared by every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(signet_flags INTERFACE)
# x86-64-v3 is the documented baseline; contraction stays off so that only an
# explicit fused multiply-add is one (contract N2, N7).
set(signet_cxx_options
  -march=x86-64-v3 -ffp-contract=off -fno-math-errno
  -Wall -Wextra -Wconversion -Wno-sign-conversion
  -Wno-missing-field-initializers -Werror=switch -Werror=return-type)

option(SIGNET_WERROR "Treat warnings as errors" OFF)
if(SIGNET_WERROR)
  list(APPEND signet_cxx_options -Werror)
endif()
set(SIGNET_SANITIZE "" CACHE STRING "Sanitizers to build with, as for gcc")
if(SIGNET_SANITIZE)
  list(APPEND signet_cxx_options -fsanitize=${SIGNET_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(signet_flags INTERFACE -fsanitize=${SIGNET_SANITIZE})
endif()
target_compile_options(signet_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${signet_cxx_options}>")
target_include_directories(signet_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
