# What receipts say about the build (contract E2): looked at in every build,
# written only when it changed.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
set(build_facts ${CMAKE_BINARY_DIR}/build_facts.cpp)
add_custom_target(signet_build_facts
  COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/build_facts.py
    ${build_facts}
    "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} $<JOIN:${signet_cxx_options}, >"
  BYPRODUCTS ${build_facts} VERBATIM)
target_sources(signet_evidence PRIVATE ${build_facts})
add_dependencies(signet_evidence signet_build_facts)
