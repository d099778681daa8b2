# cmake -DCOMPILER=c++ -DPROBE=x.cpp -DROOT=repository -P compile_fail.cmake

file(STRINGS ${PROBE} expectation REGEX "^// expect: ")
list(LENGTH expectation count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "${PROBE} needs one line `// expect: REGEX`")
endif()
string(REGEX REPLACE "^// expect: " "" expectation "${expectation}")

set(compile ${COMPILER} -std=c++20 -fsyntax-only
  -I${ROOT}/src -I${ROOT}/include)

execute_process(COMMAND ${compile} ${PROBE}
  RESULT_VARIABLE status ERROR_VARIABLE errors)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROBE} does not compile as it is:\n${errors}")
endif()

execute_process(COMMAND ${compile} -DSIGNET_MUST_FAIL ${PROBE}
  RESULT_VARIABLE status ERROR_VARIABLE errors)
if(status EQUAL 0)
  message(FATAL_ERROR "${PROBE} compiles with SIGNET_MUST_FAIL")
endif()
if(NOT errors MATCHES "${expectation}")
  message(FATAL_ERROR
    "${PROBE} fails for another reason than `${expectation}`:\n${errors}")
endif()
